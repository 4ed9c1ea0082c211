"""`lucebox bench --content`: what drafting gives on each kind of text."""
