"""Reads the definitions of a C++ file, one declaration after the other."""

from runtime.ghost.inside.sources.names import opening
from runtime.ghost.inside.sources.parts import Part, Parts
from runtime.ghost.inside.sources.text import Text, Token
from runtime.ghost.inside.sources.words import OPEN, Words

CLASSES = {"class", "struct", "union", "enum"}
# Words that may have parentheses before a function's name.
ATTRIBUTES = {"__launch_bounds__", "__attribute__", "__declspec", "alignas", "decltype", "noexcept"}
ATTRIBUTES |= {"requires", "explicit", "__align__", "throw", "_Pragma", "__pragma", "sizeof"}
MADE_UP = ("default", "delete", "0")
EXPORT = "TVM_FFI_DLL_EXPORT_TYPED_FUNC"


def parts_of(text: Text) -> Parts:
    found = Parts()
    for macro in text.macros:
        part = Part(macro.name, "macro", text.file, macro.tokens, parameters=macro.parameters)
        found.parts.append(part)
    _Scope(text, found).read(0, len(text.tokens), "")
    return found


def _typedef_name(words: list[str]) -> str:
    """Return the last name, or that of a function's type: `typedef int (*name)(int);`"""
    for at in range(2, len(words)):
        if words[at - 2] == "(" and words[at - 1] == "*":
            return words[at]
    names = [word for word in words if word.isidentifier()]
    return names[-1] if words[-1] == "]" or words[-1].isidentifier() else ""


def _has_values(parameters: list[Token]) -> bool:
    """Whether parentheses hold values, as of a variable; parameters have types, and values only after `=`."""
    is_default = False
    for at, one in enumerate(parameters):
        if one.text in (",", "="):
            is_default = one.text == "="
        elif is_default:
            continue
        elif one.kind in ("number", "string", "char") and parameters[at - 1].text not in ("[", "<", ","):
            return True
    return False


class _Scope(Words):
    """Reads a file, a namespace or a class, one declaration after the other."""

    def __init__(self, text: Text, found: Parts) -> None:
        super().__init__([one.text for one in text.tokens])
        self.file, self.tokens, self.found = text.file, text.tokens, found

    def read(self, at: int, end: int, owner: str) -> None:
        while at < end:
            at = self._next(at, end, owner)

    def _next(self, at: int, end: int, owner: str) -> int:
        word = self.words[at]
        if word in (";", "}"):
            return at + 1
        if word in ("public", "private", "protected") and self._word(at + 1) == ":":
            return at + 2
        if word == "extern" and self._word(at + 1).startswith('"'):
            return at + 3 if self._word(at + 2) == "{" else at + 2
        if word == "inline" and self._word(at + 1) == "namespace":
            return at + 1
        if word == "namespace":
            return self._namespace(at, end)
        if word == EXPORT:
            return self._export(at)
        return self._declaration(at, end, owner)

    def _namespace(self, at: int, end: int) -> int:
        """Read a namespace's content like the file's; `namespace a = b;` is an alias."""
        stop = self._find(at, end, "{;=")
        names = [word for word in self.words[at + 1 : stop] if word.isidentifier() and word != "inline"]
        self.found.namespaces.update(names)
        if self._word(stop) != "=":
            return stop + 1
        close = self._find(stop, end, ";")
        self.found.namespaces.difference_update(names)
        self.found.renamed[names[-1]] = [word for word in self.words[stop:close] if word.isidentifier()]
        return close + 1

    def _export(self, at: int) -> int:
        close = self._matching(at + 1)
        inner = self.tokens[at + 2 : close]
        if len(inner) > 2:
            self.found.exports[inner[0].text] = Part(inner[0].text, "export", self.file, inner[2:])
        return close + 1

    def _declaration(self, at: int, end: int, owner: str) -> int:
        head = self._after_template(at, end)
        word = self._word(head)
        if word == "using" and self._word(head + 1) == "namespace":
            return self._find(head, end, ";") + 1
        if word in ("using", "concept", "typedef"):
            return self._alias(at, head, end, owner)
        if word == "static_assert":
            return self._find(head, end, ";") + 1
        if word == "friend":  # a function that is defined here is a free one
            return head + 1
        while self._word(head) in ("typedef", "static", "const", "constexpr", "inline", "extern"):
            if self._word(head + 1) in CLASSES:
                head += 1
                break
            head += 1
        if self._word(head) in CLASSES:
            brace = self._class_body(head, end)
            if brace is not None:
                return self._class(at, head, brace, end, owner)
        return self._function_or_value(at, end, owner)

    def _after_template(self, at: int, end: int) -> int:
        while at < end and self.words[at] in ("template", "[", "requires"):
            if self.words[at] == "[":
                at = self._matching(at) + 1
            elif self.words[at] == "template" and self._word(at + 1) == "<":
                at = self._closing_angle(at + 1, end) + 1
            else:
                at = at + 1 if self.words[at] == "template" else self._after_requires(at + 1, end)
        return at

    def _after_requires(self, at: int, end: int) -> int:
        """Return the position after a constraint, which is terms joined by && and ||."""
        while at < end:
            if self.words[at] == "(":
                at = self._matching(at) + 1
            else:
                while at < end and (self.words[at].isidentifier() or self.words[at] in ("::", "!")):
                    at += 1
                    if self._word(at) == "<":
                        at = self._closing_angle(at, end) + 1
                    if self._word(at) not in ("::",) and self.words[at - 1] not in ("::", "!"):
                        break
            if self._word(at) not in ("&&", "||"):
                break
            at += 1
        return at

    def _alias(self, at: int, head: int, end: int, owner: str) -> int:
        close = self._find(head, end, ";")
        words = self.words[head:close]
        if "=" in words:
            names, first = [self.words[head + 1]], at
        elif words[0] == "typedef":
            names, first = [_typedef_name(words)], head + 1
        else:  # using a::b, c::d;
            names, first = [], head + 1
            for here in range(head + 1, close + 1):
                if here == close or self.words[here] == ",":
                    self._add(self.words[here - 1], "alias", first, here, owner)
                    first = here + 1
        for name in names:
            self._add(name, "alias", first, close, owner)
        return close + 1

    def _class_body(self, head: int, end: int) -> int | None:
        at = head + 1
        while at < end:
            word = self.words[at]
            if word == "{":
                return at
            if word in (";", "=") or (word == "(" and self.words[at - 1] not in ATTRIBUTES):
                return None
            at = self._matching(at) + 1 if word in OPEN else at + 1
        return None

    def _class(self, at: int, head: int, brace: int, end: int, owner: str) -> int:
        close = self._matching(brace)
        name = self._class_name(head, brace)
        named = name or owner
        self._add(named, "class", at, brace, named)
        if self.words[head] == "enum":
            self._add(named, "value", brace, close, named)
            for one in range(brace + 1, close):
                if self.words[one - 1] in ("{", ",") and self.words[one].isidentifier():
                    self._add(self.words[one], "value", one, one, named)
        else:
            self.read(brace + 1, close, named)
        stop = self._find(close, end, ";")
        if stop > close + 1:
            self._value(close + 1, stop, owner)
        return stop + 1

    def _class_name(self, head: int, brace: int) -> str:
        at, name = head + 1, ""
        while at < brace:
            word = self.words[at]
            if word == ":" or (word == "<" and name):
                break
            if word in OPEN:
                at = self._matching(at)
            elif word.isidentifier() and word not in ATTRIBUTES | CLASSES | {"final"}:
                name = word
            at += 1
        return name

    def _function_or_value(self, at: int, end: int, owner: str) -> int:
        name, here = -1, self._after_template(at, end)
        while here < end:
            word = self.words[here]
            if word == "operator":
                name = here
                here = self._find(here + 1, end, "(")
                if self._word(here + 1) == ")" and self._word(here + 2) == "(":
                    here += 2
                here = self._matching(here) + 1
                return self._function(at, name, here, end, owner)
            if word == "(":
                before = self.words[here - 1]
                close = self._matching(here)
                if here > at and (before.isidentifier() or before in (">",)) and before not in ATTRIBUTES:
                    return self._function(at, self._name_before(here, at), close + 1, end, owner)
                here = close + 1
            elif word in ("=", ";", "{"):
                break
            elif word == "<" and self.words[here - 1].isidentifier():
                closing = self._closing_angle(here, end)
                here = closing + 1
            else:
                here = self._matching(here) + 1 if word in OPEN else here + 1
        stop = self._find(here, end, ";") if here < end else end
        self._value(at, stop, owner)
        return stop + 1

    def _name_before(self, paren: int, at: int) -> int:
        """Return the position of a function's name, which template arguments may follow."""
        here = paren - 1
        return max(opening(self.tokens, here) - 1, at) if self.words[here] == ">" else here

    def _function(self, at: int, name: int, after: int, end: int, owner: str) -> int:
        """Read a function after its parameters: up to its body, or the end of a declaration."""
        here, listed = after, False
        while here < end:
            word = self.words[here]
            if word == "{" and not (listed and self.words[here - 1] not in (")", "}")):
                break
            if word == ";" or word == "=":
                break
            listed = listed or word == ":"
            here = self._matching(here) + 1 if word in OPEN else here + 1
        called = self.words[name]
        before = self.tokens[self._after_template(at, end) : name]
        if called == "operator" or (name and self.words[name - 1] == "~"):
            called = owner or ("" if called == "operator" else called)
        if not before and called.isupper() and self.tokens[min(after, end - 1)].kind == "name":
            self.found.at_load.append(self._add(called, "value", at, after, owner))
            return after  # a macro without a semicolon
        if self._word(here) == "{":
            close = self._matching(here)
            part = self._add(called, "function", at, close + 1, owner)
            part.before, part.after = before, self.tokens[after:here]
            part.template = self.tokens[at : self._after_template(at, end)]
            part.signature = self.tokens[name + 1 : after]
            if not before and called != owner:  # a macro that makes what runs when the module is loaded
                self.found.at_load.append(part)
            return close + 1
        stop = self._find(here, end, ";")
        part = self._add(called, "declared" if before else "value", at, stop, owner)
        part.before, part.after = before, self.tokens[after:here]
        if called != owner and (not before or (not owner and _has_values(self.tokens[name + 1 : after]))):
            self.found.at_load.append(part)
        elif self._word(here) == "=" and called != owner and self._word(here + 1) not in MADE_UP:
            part.kind = "value"
        return stop + 1

    def _value(self, at: int, stop: int, owner: str) -> None:
        """Add a variable. If it is not constant, its initializer runs when the module is loaded."""
        first = self._after_template(at, stop)
        here = first
        while here < stop and self.words[here] not in ("=", "{", "[", ":"):
            here = self._closing_angle(here, stop) + 1 if self.words[here] == "<" else here + 1
        name = self.words[here - 1] if here > first and self.words[here - 1].isidentifier() else ""
        part = self._add(owner or name, "value", at, stop, owner)
        part.before = self.tokens[first:here]
        if not owner and "constexpr" not in self.words[first:here]:
            self.found.at_load.append(part)

    def _add(self, name: str, kind: str, at: int, stop: int, owner: str) -> Part:
        part = Part(name, kind, self.file, self.tokens[at:stop], owner=owner)
        self.found.parts.append(part)
        return part
