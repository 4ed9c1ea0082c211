"""The chat template for files that have none or a broken one: ChatML as Qwen3.5 uses it."""

CHATML = """\
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools\\n\\nYou have access to the following functions:\\n\\n<tools>' }}
    {%- for tool in tools %}{{ '\\n' ~ (tool | tojson) }}{% endfor %}
    {{- '\\n</tools>\\n\\nTo call a function, reply in exactly this format:\\n\\n<tool_call>\\n<function=NAME>\\n' }}
    {{- '<parameter=KEY>\\nVALUE\\n</parameter>\\n</function>\\n</tool_call>' }}
    {%- if messages[0].role == 'system' and messages[0].content %}{{ '\\n\\n' ~ messages[0].content | trim }}{% endif %}
    {{- '<|im_end|>\\n' }}
{%- elif messages[0].role == 'system' %}
    {{- '<|im_start|>system\\n' ~ messages[0].content | trim ~ '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content | trim %}
    {%- if message.role == 'user' %}
        {{- '<|im_start|>user\\n' ~ content ~ '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {{- '<|im_start|>assistant\\n' }}
        {%- if message.reasoning_content and thinks %}
            {{- '<think>\\n' ~ message.reasoning_content | trim ~ '\\n</think>\\n\\n' }}
        {%- endif %}
        {{- content }}
        {%- for call in message.tool_calls or [] %}
            {{- '\\n\\n' if loop.first and content else '' if loop.first else '\\n' }}
            {{- '<tool_call>\\n<function=' ~ call.function.name ~ '>\\n' }}
            {%- for name, value in call.function.arguments | items %}
                {{- '<parameter=' ~ name ~ '>\\n' ~ (value if value is string else value | tojson) }}
                {{- '\\n</parameter>\\n' }}
            {%- endfor %}
            {{- '</function>\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- elif message.role == 'tool' %}
        {{- '<|im_start|>user' if loop.first or loop.previtem.role != 'tool' else '' }}
        {{- '\\n<tool_response>\\n' ~ content ~ '\\n</tool_response>' }}
        {{- '<|im_end|>\\n' if loop.last or loop.nextitem.role != 'tool' else '' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if thinks %}
        {{- '<think>\\n\\n</think>\\n\\n' if enable_thinking is false else '<think>\\n' }}
    {%- endif %}
{%- endif %}
"""
