"""The page as text: templates filled in, and how values are written in them."""

from __future__ import annotations

from typing import Any

import jinja2

from bulkinfer.errors import escaped
from bulkinfer.host.number_text import duration_text, percent_text, rate_text
from bulkinfer.types import key_text


def render(template: str, **content: Any) -> str:
    """The HTML of a template in templates/. Every text in `content` is escaped; none is taken as markup."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("bulkinfer.insight.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "count": "{:,.0f}".format,
        "percent": percent_text,
        "duration": duration_text,
        "rate": rate_text,
        "name": name,
    }
    return environment.get_template(template).render(**content)


def name(value: str | bytes) -> str:
    """A key or another name as one printable line: line breaks and characters that show nothing are escaped."""
    return escaped(key_text(value) if isinstance(value, bytes) else value)
