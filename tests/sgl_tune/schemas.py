"""docs/schemas as a test reads them: every member that is printed must stand there."""

import json
from typing import Any

from jsonschema import Draft202012Validator

from tests.sgl_tune.running import ROOT, run_here

SCHEMAS = ROOT / "docs" / "schemas"


def schema_faults(name: str, data: Any) -> list[str]:
    schema = json.loads((SCHEMAS / f"{name}.json").read_text())
    Draft202012Validator.check_schema(schema)
    if "anyOf" in schema:  # one plan or several, each branch closed by itself
        assert data["schema_version"] == schema["properties"]["schema_version"]["const"]
        data = {key: value for key, value in data.items() if key != "schema_version"}
        schema = {"$defs": schema["$defs"], "anyOf": schema["anyOf"]}
    found = Draft202012Validator(_closed(schema)).iter_errors(data)
    return [f"{fault.json_path}: {fault.message[:300]}" for fault in found]


def told(*words: object, code: int | None = 0) -> Any:
    """What a command prints as JSON, by its schema. `code`: of its exit; None: good or bad."""
    ran = run_here(*words, "--format", "json")
    assert ran.code in ((0, 1) if code is None else (code,)), ran.err
    printed = json.loads(ran.out)
    assert schema_faults(str(words[0]), printed) == []
    return printed


def _closed(schema: Any) -> Any:
    """Readers must bear new members; we must publish them."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _closed(part) for name, part in schema.items()}
    is_object = isinstance(schema.get("properties"), dict) and "anyOf" not in schema
    return {"additionalProperties": False, **closed} if is_object else closed
