"""`lucebox bench --url`: the speed of any OpenAI-compatible server, as its clients see it."""
