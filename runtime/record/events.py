"""Makes a record of the events that a start sends."""

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any, TypeVar

from runtime.record import parts
from runtime.record.calls import Call
from runtime.record.checked import read
from runtime.record.layers import ConfigLookup, LayerCall
from runtime.record.record import SCHEMA, Record
from runtime.record.settled import Resolved, Settled

T = TypeVar("T")
Event = dict[str, Any]
NO_DATA = "its data is not of the record's form"
PARTS: dict[str, type] = {
    "phase": parts.Phase,
    "inexact": parts.Inexact,
    "module": parts.Module,
    "kernel": parts.Kernel,
    "key": parts.Key,
    "call": Call,
    "file": parts.CacheFile,
    "said": parts.Said,
    "config": ConfigLookup,
    "layer": LayerCall,
}


def record_of(asked: parts.Asked, events: Iterable[Event]) -> Record:
    """Return the record of one start. Its ending is "broken" if the events stop without an ending."""
    found: dict[str, list[Any]] = {name: [] for name in PARTS}
    held: list[parts.Held] = []
    lacks: dict[str, None] = {}
    makers: dict[str, Event] = {}
    ending, sizes, resolved, settled = None, None, Resolved(), None
    counted, cost = dict[str, int](), parts.Cost(0.0, 0)
    for event in events:
        name = event["event"]
        if name == "call":
            found[name].append(_call(event))
        elif name in PARTS:
            found[name].append(_part(PARTS[name], event))
        elif name == "held":
            held += [parts.Held(event["phase"], what, size) for what, size in event["bytes"].items()]
        elif name == "asked":
            resolved = _part(Resolved, event)
        elif name == "settled":
            settled = _part(Settled, event)
        elif name == "lacks":
            lacks[f"{event['what']}: {event['why']}"] = None
        elif name == "maker":
            makers[event["name"]] = event
        elif name == "stopped":
            ending = parts.Ending("stopped", event["phase"])
        elif name == "outside":
            counted = {what: count for what, count in event.items() if what not in ("event", "phase")}
        elif name == "ready":
            ending, sizes = parts.Ending("ready"), _part(parts.Sizes, event)
        elif name in ("died", "refused", "broken") and ending is None:
            ending = _ending(name, event)
        elif name == "ended":
            cost = parts.Cost(float(event["cpu"]), event["rss"])
            ending = ending or parts.Ending("broken", text=f"the start's process ended with {event['code']}")
    return Record(
        schema_version=SCHEMA,
        asked=asked,
        resolved=replace(resolved, settled=settled),
        ending=ending or parts.Ending("broken", text="the start's process ended without a word"),
        sizes=sizes,
        inexact=tuple(found["inexact"]),
        modules=tuple(_made(one, makers.get(one.name)) for one in found["module"]),
        kernels=tuple(dict.fromkeys(found["kernel"])),
        counted=counted,
        cost=cost,
        held=tuple(held),
        lacks=tuple(lacks),
        said=tuple(found["said"]),
        **{f"{name}s": tuple(found[name]) for name in ("phase", "key", "file", "call", "config", "layer")},
    )


def _made(module: parts.Module, maker: Event | None) -> parts.Module:
    if maker is None:
        return module
    return replace(module, maker=maker["maker"], arguments=tuple(maker["arguments"]))


def _call(event: Event) -> Call:
    """Return the call. If its data has a wrong form, keep only its lookups: it cannot be made again."""
    try:
        return _part(Call, event)
    except TypeError:
        asks = [{**lookup, "policy": []} for lookup in event["lookups"]]
        nothing = {"arguments": [], "named": {}, "storages": [], "contexts": [], "lookups": asks}
        return _part(Call, {**event, **nothing, "unreplayable": event.get("unreplayable") or NO_DATA})


def _part(kind: type[T], event: Event) -> T:
    """Return the part with the event's fields that it has; other fields are for other readers."""
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    return read(kind, {name: value for name, value in event.items() if name in names}, event["event"])


def _ending(how: str, event: Event) -> parts.Ending:
    at = _part(parts.Phase, {**event, "name": event["phase"]}) if "reserved_peak" in event else None
    return parts.Ending(
        how, event.get("phase"), event.get("type"), event.get("text"), tuple(event.get("stack", ())), at
    )
