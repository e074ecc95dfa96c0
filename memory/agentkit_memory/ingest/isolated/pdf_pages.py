"""Reader of PDF: the text of each page, the values of its form fields, and its notes."""

from __future__ import annotations

from typing import Any, BinaryIO

from agentkit_memory.ingest.isolated.pdf_characters import are_codes, are_words, may_be_codes, with_marks
from agentkit_memory.ingest.isolated.pdf_fonts import PageFonts, page_fonts
from agentkit_memory.ingest.isolated.pdf_forms import field_values, note_texts
from agentkit_memory.ingest.isolated.pdf_tables import with_columns
from agentkit_memory.ingest.isolated.written_rows import Unreadable, described, write, write_text, write_title
from agentkit_prompts.extras import install

_NO_MAP = "text in a font without a character map (copying from a viewer gives wrong letters); convert it with OCR"
_NO_TEXT = "no text, perhaps only an image; convert it with OCR"


def read(stream: BinaryIO) -> None:
    """Write the rows of a file."""
    reader = _opened(stream)
    count = len(reader.pages)
    write_title(str((reader.metadata and reader.metadata.title) or ""))
    for number in range(1, count + 1):
        _write_page(reader, number)
    if "/XFA" in reader.root_object.get("/AcroForm", {}) and not reader.get_fields():
        write("gap", "form", "", "an XFA form, whose values are not read; print it to a PDF first")


def _opened(stream: BinaryIO) -> Any:
    """Return the reader of the library, for a file that is not encrypted or has no password."""
    try:
        import pypdf
        from pypdf.errors import DependencyError
    except ImportError:
        raise Unreadable(f"needs pypdf: {install('ingest')}") from None
    reader = pypdf.PdfReader(stream)
    try:
        if reader.is_encrypted and not reader.decrypt(""):
            raise Unreadable("is encrypted; decrypt it first")
    except DependencyError as error:
        raise Unreadable(f"is encrypted in a way that needs another library ({described(error)})") from None
    return reader


def _write_page(reader: Any, number: int) -> None:
    try:
        page = reader.pages[number - 1]
        text, has_unmapped = _page_text(page)
        texts = [text, field_values(page), note_texts(page)]
    except MemoryError:
        write("problem", f"page {number} cannot be read (takes too much memory: it may be a zip bomb)")
        return
    except Exception as error:
        write("problem", f"page {number} cannot be read ({described(error)})")
        return
    text = "\n\n".join(text for text in texts if text.strip())
    write("section", {"page": number})
    write_text(text)
    if has_unmapped:
        write("gap", "page", number, _NO_MAP)
    elif not text:
        write("gap", "page", number, _NO_TEXT)


def _page_text(page: Any) -> tuple[str, bool]:
    """Return the text of a page without glyph numbers, and True if text was left out."""
    fonts = page_fonts(page)
    if not fonts.unmapped and not fonts.doubtful:
        text = page.extract_text()
        if not may_be_codes(text):
            return with_columns(page, with_marks(text)), False
    return _readable_text(page, fonts)


def _readable_text(page: Any, fonts: PageFonts) -> tuple[str, bool]:
    """Return the text of the fonts of a page whose text is readable, and True if text of other fonts was left out."""
    pieces: list[tuple[str, int]] = []
    texts: dict[int, str] = {}

    def collect(text: str, _matrix: object, _text_matrix: object, font: Any, _size: object) -> None:
        name = id(font.get_object()) if font is not None else 0
        pieces.append((text, name))
        texts[name] = texts.get(name, "") + text

    page.extract_text(visitor_text=collect)
    codes = {name for name, text in texts.items() if are_codes(text, is_mapped=name not in fonts.doubtful)}
    if not codes and not fonts.unmapped.intersection(texts):
        return with_columns(page, with_marks(page.extract_text())), False
    readable = [text if name not in codes | fonts.unmapped or not text.strip() else "\n" for text, name in pieces]
    text = with_marks("".join(readable)).strip()
    has_lost = any(text.strip() and name in fonts.unmapped for text, name in pieces)
    lost = [texts[name] for name in codes]
    return text, has_lost or are_words(lost) or (bool(lost) and not text)
