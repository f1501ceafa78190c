"""Write the keys of the admission policy into the chart, from the table of keys: python scripts/admission_keys.py."""

from pathlib import Path

from kaiwo.manifests.kinds.key_table import KEYS, RESERVED

PATH = Path(__file__).resolve().parent.parent / "deploy" / "chart" / "templates" / "_keys.tpl"
HEAD = (
    "{{- /* Made by scripts/admission_keys.py from src/kaiwo/manifests/kinds/key_table.py; change that instead. */ -}}"
)


def template() -> str:
    """Named templates with CEL lists and maps, one entry a line."""
    rows = [row for row in KEYS if row.on == "pods" and row.name not in RESERVED]
    reserved = [f'"kaiwo.ai/{name}"' for name in RESERVED]
    forms = [f"'{row.name}': r'^(?:{row.form})$'" for row in rows if row.form]
    lengths = [f"'{row.name}': {row.max_characters}" for row in rows]
    request = [
        f'"{prefix}{row.name}"' for row in rows if row.is_request for prefix in ("kaiwo.ai/", "kaiwo.silogen.ai/")
    ]
    named = {
        "reservedKeys": ("[", reserved, "]"),
        "keyForms": ("{", forms, "}"),
        "keyLengths": ("{", lengths, "}"),
        "requestKeys": ("[", request, "]"),
    }
    parts = [
        f'{{{{- define "kaiwo.{name}" -}}}}\n{opening}\n' + ",\n".join(lines) + f"\n{closing}\n{{{{- end }}}}\n"
        for name, (opening, lines, closing) in named.items()
    ]
    return HEAD + "\n" + "\n".join(parts)


if __name__ == "__main__":
    PATH.write_text(template())
