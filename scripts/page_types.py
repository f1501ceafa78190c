"""Write the web page's types, ui/src/api/views.ts, from the OpenAPI document.

In:    the schemas of all answers of the API.   Out: one TypeScript type for each.
Forms are left out: the page sends none. `make ui` runs this, and a test fails when the file is stale.
"""

from pathlib import Path
from typing import Any

import msgspec

from kaiwo.api.application import document

TARGET = Path(__file__).parent.parent / "ui" / "src" / "api" / "views.ts"
HEAD = "// Generated from the OpenAPI document by scripts/page_types.py; change src/kaiwo/api/views/ instead.\n"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}
PAGE = "Page_"


def page_types() -> str:
    """The whole file."""
    schemas = msgspec.json.decode(msgspec.json.encode(document()))["components"]["schemas"]
    page = next(schema for name, schema in schemas.items() if name.startswith(PAGE))
    parts = [HEAD, _interface("Page<T>", page | {"properties": page["properties"] | {"items": {"title": "T[]"}}})]
    for name, schema in sorted(schemas.items()):
        if name.startswith(PAGE) or schema.get("additionalProperties") is False:
            continue  # a page of a view, or a form
        parts.append(_interface(name, schema) if "properties" in schema else _choices(name, schema))
    return "\n".join(parts)


def _interface(name: str, schema: dict[str, Any]) -> str:
    fields = "".join(
        f"  {field}{_mark(field, schema)}: {_type(kind)}\n" for field, kind in schema["properties"].items()
    )
    return f"/** {schema['description']} */\nexport interface {name} {{\n{fields}}}\n"


def _choices(name: str, schema: dict[str, Any]) -> str:
    return f"/** {schema['description']} */\nexport type {name} = {_type(schema)}\n"


def _mark(field: str, schema: dict[str, Any]) -> str:
    """A field with a default is always sent; one that is neither required nor has a default may be absent."""
    return "" if field in schema["required"] or "default" in schema["properties"][field] else "?"


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "enum" in schema:
        return " | ".join(f"'{value}'" for value in schema["enum"])
    if "anyOf" in schema:
        return " | ".join(_type(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        inner = _type(schema["items"]) if schema.get("items") else "unknown"
        return f"({inner})[]" if " " in inner else f"{inner}[]"
    if schema.get("type") == "object":
        inner = schema.get("additionalProperties")
        return f"Record<string, {_type(inner) if inner else 'unknown'}>"
    return PLAIN[schema["type"]] if "type" in schema else schema.get("title", "unknown")


if __name__ == "__main__":
    text = page_types()
    if not TARGET.exists() or TARGET.read_text() != text:
        TARGET.write_text(text)
