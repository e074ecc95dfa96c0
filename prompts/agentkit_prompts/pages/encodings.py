"""Encodings of web pages: the labels of the WHATWG Encoding Standard, declarations, and escape sequences.

The standard reads a label as the encoding that browsers use for it: `gb2312` is GB18030, `iso-8859-1` is windows-1252.
"""

from __future__ import annotations

import re

_HEAD = 4096
"""Bytes at the start of a page in which a declaration is searched."""

_LABELS = {
    "utf-8": "utf8 utf-8 unicode-1-1-utf-8 unicode11utf8 unicode20utf8 x-unicode20utf8",
    "cp866": "866 cp866 csibm866 ibm866",
    "iso8859-2": "csisolatin2 iso-8859-2 iso-ir-101 iso8859-2 iso88592 iso_8859-2 iso_8859-2:1987 l2 latin2",
    "iso8859-3": "csisolatin3 iso-8859-3 iso-ir-109 iso8859-3 iso88593 iso_8859-3 iso_8859-3:1988 l3 latin3",
    "iso8859-4": "csisolatin4 iso-8859-4 iso-ir-110 iso8859-4 iso88594 iso_8859-4 iso_8859-4:1988 l4 latin4",
    "iso8859-5": "csisolatincyrillic cyrillic iso-8859-5 iso-ir-144 iso8859-5 iso88595 iso_8859-5 iso_8859-5:1988",
    "iso8859-6": "arabic asmo-708 csiso88596e csiso88596i csisolatinarabic ecma-114 iso-8859-6 iso-8859-6-e"
    " iso-8859-6-i iso-ir-127 iso8859-6 iso88596 iso_8859-6 iso_8859-6:1987",
    "iso8859-7": "csisolatingreek ecma-118 elot_928 greek greek8 iso-8859-7 iso-ir-126 iso8859-7 iso88597 iso_8859-7"
    " iso_8859-7:1987 sun_eu_greek",
    "iso8859-8": "csiso88598e csiso88598i csisolatinhebrew hebrew iso-8859-8 iso-8859-8-e iso-8859-8-i iso-ir-138"
    " iso8859-8 iso88598 iso_8859-8 iso_8859-8:1988 logical visual",
    "iso8859-10": "csisolatin6 iso-8859-10 iso-ir-157 iso8859-10 iso885910 l6 latin6",
    "iso8859-13": "iso-8859-13 iso8859-13 iso885913",
    "iso8859-14": "iso-8859-14 iso8859-14 iso885914",
    "iso8859-15": "csisolatin9 iso-8859-15 iso8859-15 iso885915 iso_8859-15 l9",
    "iso8859-16": "iso-8859-16",
    "koi8-r": "cskoi8r koi koi8 koi8-r koi8_r",
    "koi8-u": "koi8-ru koi8-u",
    "mac-roman": "csmacintosh mac macintosh x-mac-roman",
    "mac-cyrillic": "x-mac-cyrillic x-mac-ukrainian",
    "cp874": "dos-874 iso-8859-11 iso8859-11 iso885911 tis-620 windows-874",
    "cp1250": "cp1250 windows-1250 x-cp1250",
    "cp1251": "cp1251 windows-1251 x-cp1251",
    "windows-1252": "ansi_x3.4-1968 ascii cp1252 cp819 csisolatin1 ibm819 iso-8859-1 iso-ir-100 iso8859-1 iso88591"
    " iso_8859-1 iso_8859-1:1987 l1 latin1 latin-1 us-ascii windows-1252 x-cp1252 x-user-defined",
    "cp1253": "cp1253 windows-1253 x-cp1253",
    "cp1254": "cp1254 csisolatin5 iso-8859-9 iso-ir-148 iso8859-9 iso88599 iso_8859-9 iso_8859-9:1989 l5 latin5"
    " windows-1254 x-cp1254",
    "cp1255": "cp1255 windows-1255 x-cp1255",
    "cp1256": "cp1256 windows-1256 x-cp1256",
    "cp1257": "cp1257 windows-1257 x-cp1257",
    "cp1258": "cp1258 windows-1258 x-cp1258",
    "gb18030": "chinese csgb2312 csiso58gb231280 gb2312 gb_2312 gb_2312-80 gbk iso-ir-58 x-gbk gb18030 gb-18030 cp936",
    "hz": "hz hz-gb-2312",
    "big5hkscs": "big5 big5-hkscs cn-big5 csbig5 x-x-big5 cp950",
    "euc-jp": "cseucpkdfmtjapanese euc-jp x-euc-jp",
    "iso2022-jp-ext": "csiso2022jp iso-2022-jp",
    "cp932": "csshiftjis cp932 ms932 ms_kanji shift-jis shift_jis sjis windows-31j x-sjis",
    "cp949": "cseuckr csksc56011987 euc-kr iso-ir-149 korean ks_c_5601-1987 ks_c_5601-1989 ksc5601 ksc_5601 windows-949"
    " cp949",
    "utf-16-be": "unicodefffe utf-16be",
    "utf-16-le": "csunicode iso-10646-ucs-2 ucs-2 unicode unicodefeff utf-16 utf-16le",
}
"""Labels of pages by the Python name of their encoding."""

_ENCODINGS = {label: name for name, labels in _LABELS.items() for label in labels.split()}

_MARKS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
"""Encodings by byte order mark."""
_COMMENT = re.compile(rb"<!--.*?(?:-->|\Z)", re.DOTALL)
_META = re.compile(rb"<meta[^>]{1,200}?charset\s*+=\s*+[\"']?+\s*+([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_XML = re.compile(rb"\s*+<\?xml[^>]{1,200}?encoding\s*+=\s*+[\"']\s*+([A-Za-z0-9_:.-]{1,40})", re.IGNORECASE)
_WITHOUT_MARK = re.compile(rb"(?:[ \t\r\n]\0)*+<\0(?P<le>)|(?:\0[ \t\r\n])*+\0<")
"""Start of a page in UTF-16 without a byte order mark."""
_JAPANESE = (b"\x1b$B", b"\x1b$@", b"\x1b(J", b"\x1b(I")
_CHINESE = re.compile(rb"~\{(?:[\x21-\x29\x30-\x77][\x21-\x7e])++~\}")


def marked_encoding(text: bytes | bytearray) -> tuple[str | None, int]:
    """Return the encoding and the length of the byte order mark of a text; None and 0 for a text without a mark."""
    for mark, name in _MARKS.items():
        if text.startswith(mark):
            return name, len(mark)
    return None, 0


def encoding_of_label(label: str) -> str | None:
    """Return the Python name of the encoding that browsers use for a label, or None for an unknown label."""
    return _ENCODINGS.get(label.strip().lower())


def declared_encoding(page: bytes) -> str:
    """Return the encoding of a page without a byte order mark, by the declaration in its first bytes; else UTF-8."""
    head = page[:_HEAD]
    if start := _WITHOUT_MARK.match(head):
        return "utf-16-be" if start["le"] is None else "utf-16-le"
    for declaration in (_META.search(_COMMENT.sub(b"", head)), _XML.match(head)):
        name = declaration and encoding_of_label(declaration[1].decode("ascii"))
        # The declaration was read as ASCII, so that the page cannot be UTF-16.
        if name and not name.startswith("utf-16"):
            return name
    return escape_encoding(page) or "utf-8"


def escape_encoding(data: bytes) -> str | None:
    """Return the encoding of 7-bit text with the escape sequences of ISO-2022-JP or HZ, or None.

    Two runs of Chinese characters are expected in HZ, because its escape sequences are printable characters.
    """
    if not data.isascii():
        return None
    if b"\x1b" in data and any(sequence in data for sequence in _JAPANESE):
        return "iso2022-jp-ext"
    if b"~{" in data and len(_CHINESE.findall(data)) > 1:
        return "hz"
    return None
