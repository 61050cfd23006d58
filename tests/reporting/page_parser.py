"""What a page of HTML consists of, for the tests of reports."""

from __future__ import annotations

from html.parser import HTMLParser

_VOID = {"meta", "input", "br", "rect", "path", "link", "img", "hr"}


class PageParser(HTMLParser):
    """Ids, links, text, and whether elements are closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.metas: list[dict[str, str | None]] = []
        self.unbalanced: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.unbalanced += self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        given = dict(attrs)
        if given.get("id"):
            self.ids.append(str(given["id"]))
        if tag == "meta":
            self.metas.append(given)
        if tag == "a":
            self.links.append(str(given.get("href")))
        for name in ("src", "srcset", "action", "data", "poster", "xlink:href"):
            if name in given:
                self.fetched.append(f"{tag} {name}={given[name]}")
        if tag == "link":
            self.fetched.append(f"link {given.get('href')}")
        if tag not in _VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in _VOID:
            return
        if not self._open or self._open.pop() != tag:
            self.unbalanced.append(tag)

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] not in ("style", "script"):
            self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)
