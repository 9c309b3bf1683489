"""The page as text: templates filled in, and how values are written in them."""

from __future__ import annotations

from typing import Any

import jinja2

from bulkinfer.errors import escaped
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
    environment.filters |= {"count": count, "percent": percent, "seconds": seconds, "name": name, "rate": rate}
    return environment.get_template(template).render(**content)


def count(number: float) -> str:
    """12,345"""
    return f"{number:,.0f}"


def percent(share: float) -> str:
    """A share from 0 to 1 as 12.3 %; small shares that are not 0 as less than 0.1 %."""
    return "under 0.1 %" if 0 < share < 0.0005 else f"{100 * share:.1f} %"


def seconds(value: float) -> str:
    """A length of time: 3.2 s, 4 min 10 s, 2 h 5 min."""
    if value < 100:
        return f"{value:.1f} s" if value >= 0.05 or not value else f"{1000 * value:.0f} ms"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if minutes < 100 else f"{minutes // 60:,} h {minutes % 60} min"


def rate(value: float) -> str:
    """Pictures per second."""
    return f"{value:,.0f} images/s" if value >= 100 else f"{value:.1f} images/s"


def name(value: str | bytes) -> str:
    """A key or another name as one printable line: line breaks and characters that show nothing are escaped."""
    return escaped(key_text(value) if isinstance(value, bytes) else value)
