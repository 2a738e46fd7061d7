"""Cut a command's text into the words that a shell would pass. Nothing is run or expanded."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile

from sgl_tune.errors import UsageError
from sgl_tune.units import shown

# A substitution, also inside one other; if deeper or never closed, only its beginning matches.
_EXPANSION = (
    r"(?P<expansion>\$\{(?:[^{}]|\{[^{}]*\})*\}|\$\((?:[^()]|\([^()]*\))*\)|\$\{|\$\("
    r"|\$\w+|\$[@\#?$!*-]|`[^`]*`)"
)
_PIECE = re.compile(
    r"""(?P<continued>\\\n)|(?P<blank>[ \t\r]+)|(?P<comment>\#[^\n]*)
    |(?P<placeholder><[A-Za-z][^<>|&;\n]*>|[<>]\((?:[^()]|\([^()]*\))*\))
    |(?P<redirect>&>>?|\d*(?:<<<|<<-?|<>|<&|>>|>\||>&|<|>))
    |(?P<operator>&&|\|\||\|&|;;|[;&|()\n])
    |\\(?P<escaped>.)|'(?P<single>[^']*)'|"(?P<double>(?:[^"\\]|\\.)*)"
    |"""
    + _EXPANSION
    + r"""|(?P<plain>[^ \t\r\n\\'"$`\#;&|()<>\d]+|\d+|[$\#])""",
    re.VERBOSE | re.DOTALL,
)
_LAST_CONTINUATION = re.compile(r"(?<!\\)\\\s*\Z")
# A document for a command's input, unless a server may start in it.
_DOCUMENT = re.compile(r"(?m)<<-?[ \t]*(['\"]?)(\w+)\1(.*)\n(?:(?!.*sglang).*\n)*?[ \t]*\2[ \t]*$")
_OBJECT = re.compile(r"(?m)^(?:- )?(?:apiVersion|kind): |^services:[ \t\r]*$")  # of Kubernetes or Compose
_BEGIN = re.compile(r"(?<!<)<<(-?)[ \t]*(\\|['\"]?)(\w+)")  # of any document
_IN_DOCUMENT = re.compile(r"\\([\\$`])|" + _EXPANSION)
_LONGEST = 1 << 15
_INSIDE_QUOTES = re.compile(r"\\(?P<escaped>[\\\"$`\n])|" + _EXPANSION)
# What a shell expands if unquoted; `q` stands for every quoted letter.
_PATTERN = re.compile(r"[*?]|\{[^{},]*,[^{}]*\}|\{[^{}.]*\.\.[^{}]*\}|^~|(?<=[=:])~")
_PLAIN = r"[\w./:@+,-]"
_SET = re.compile(rf"(?m)^(?:export )?([A-Za-z_]\w*)=({_PLAIN}+)[ \t]*(?:#.*)?$")
_SETS = re.compile(r"(\w+)\+?=")
_BRANCH = re.compile(r"(?m)^(?:if|for|while|until|case|select|function)\b|^\w+ *\(\)")
_HIDDEN = re.compile(r"(?m)^\s*(?:source|\.|eval|read|unset)[ \t]")
_NAME = re.compile(r"\$(?:\{(\w+)\}|(\w+))")
# Also where a shell's quotes keep it.
EXPANDED = re.compile(r"\$(?:\{[^}]*\}|\([^)]*\)|[A-Za-z_]\w*)|`[^`]*`")


class Word(str):
    """A word of a command. `expands`: the part of it that a shell would have replaced."""

    expands: str = ""

    def part(self, text: str) -> "Word":
        """Return another text with the same `expands`, such as a part of the word."""
        piece = Word(text)
        piece.expands = self.expands
        return piece


class Pasted(str):
    """A text that starts a server. `where`: its place, for errors. `folder`: where relative paths of a
    Compose file begin. `name`: the container meant. `file`: as -f names it."""

    where: str = "after --"
    folder: str = ""
    name: str | None = None
    file: str = ""


@dataclass
class _Writing:
    text: str = ""
    shape: str = ""
    expands: str = ""
    begun: bool = False

    def add(self, text: str, quoted: bool) -> None:
        self.begun = True
        self.text += text
        self.shape += "q" * len(text) if quoted else text

    def word(self) -> Word:
        word = Word(self.text)
        pattern = _PATTERN.search(self.shape)
        word.expands = self.expands or (self.text if pattern else "")
        return word


@dataclass
class _Command:
    words: list[Word] = field(default_factory=list)
    drops_next: bool = False  # the next word is a redirection's file

    def take(self, writing: _Writing) -> _Writing:
        if writing.begun and not self.drops_next:
            self.words.append(writing.word())
        self.drops_next = self.drops_next and not writing.begun
        return _Writing()


def set_once(text: str) -> dict[str, str]:
    """Return the variables that a script's lines set once, to a plain value and outside of branches."""
    if _HIDDEN.search(text):
        return {}
    often = Counter(_SETS.findall(text))
    return {name: value for name, value in _SET.findall(_BRANCH.split(text)[0]) if often[name] == 1}


def filled(word: Word, values: Mapping[str, str]) -> Word:
    """Return the word with the variables that have values; unchanged if anything else expands in it."""
    text = _NAME.sub(lambda found: values.get(found[1] or found[2], found[0]), word)
    return Word(text) if word.expands and re.fullmatch(rf"(?:{_PLAIN}|=)*", text) else word


def manifest_in(script: Pasted) -> Pasted | None:
    """Return the manifests that a script gives to its commands, as documents (<<EOF), if one is SGLang's."""
    found = Pasted("\n---\n".join(filter(_OBJECT.search, _documents(script))))
    vars(found).update(vars(script))
    return found if "sglang" in found else None


def _documents(text: str) -> Iterator[str]:
    """Yield a script's documents, filled as far as the lines above set values."""
    values, above, lines = set_once(text), dict[str, str](), iter(text.splitlines())
    for line in lines:
        above |= {name: values[name] for name in _SETS.findall(line) if name in values}
        if begun := _BEGIN.search(line):
            body = "\n".join(takewhile(re.compile(rf"(?!\s*{begun[3]}\s*$)").match, lines))
            body = re.sub(r"(?m)^\t+", "", body) if begun[1] else body
            yield body if begun[2] else _IN_DOCUMENT.sub(partial(_of_document, above), body)


def _of_document(values: Mapping[str, str], piece: re.Match[str]) -> str:
    """Return an expansion's value, or itself. A shell's `$(X)` becomes `$( X)`, unlike Kubernetes's."""
    name, left = _NAME.fullmatch(piece[0]), re.sub(r"^\$\((?=\w)", "$( ", piece[0])
    return piece[1] or (values.get(name[1] or name[2], left) if name else left)


def shell_commands(text: str) -> list[list[Word]]:
    """Return every simple command of `text`, without its redirections."""
    if len(text) > _LONGEST:
        raise UsageError(f"the server command has {len(text)} letters: {_LONGEST} are the most")
    whole = _LAST_CONTINUATION.sub("", _DOCUMENT.sub(r"\3", text.replace("\r\n", "\n")))
    return [words for words in _commands(whole) if words]


def _commands(text: str) -> Iterator[list[Word]]:
    command, writing, at = _Command(), _Writing(), 0
    while at < len(text):
        piece = _PIECE.match(text, at)
        if piece is None:
            raise UsageError(
                f"the server command cannot be split into words: {shown(text[at:])} is not closed"
            )
        kind, at = piece.lastgroup, piece.end()
        if kind == "comment" and writing.begun:  # a # inside a word
            writing.add("#", quoted=False)
            at = piece.start() + 1
        elif kind == "redirect" and writing.begun and piece[0][0].isdigit():  # digits at a word's end
            digits = len(piece[0]) - len(piece[0].lstrip("0123456789"))
            writing.add(piece[0][:digits], quoted=False)
            at = piece.start() + digits
        elif kind in ("blank", "comment", "redirect", "operator"):
            writing = command.take(writing)
            if kind == "redirect":
                if piece[0].lstrip("0123456789") in ("<<", "<<-"):
                    raise UsageError(
                        f"the server command reads a document ({piece[0]}), which is not followed"
                    )
                command.drops_next = True
            if kind == "operator":
                yield command.words
                command = _Command()
        else:
            _add(writing, kind, piece)
    command.take(writing)
    yield command.words


def _add(writing: _Writing, kind: str | None, piece: re.Match[str]) -> None:
    if kind in ("escaped", "single"):
        writing.add(piece[kind], quoted=True)
    elif kind == "double":
        _add_double(writing, piece["double"])
    elif kind in ("expansion", "placeholder"):
        writing.expands = writing.expands or piece[0]
        writing.add(piece[0], quoted=True)
    elif kind == "plain":
        writing.add(piece[0], quoted=False)


def _add_double(writing: _Writing, text: str) -> None:
    def plain(piece: re.Match[str]) -> str:
        if piece["expansion"]:
            writing.expands = writing.expands or piece[0]
            return piece[0]
        return "" if piece["escaped"] == "\n" else piece["escaped"]

    writing.add(_INSIDE_QUOTES.sub(plain, text), quoted=True)
