"""Search of words in many scripts and spellings."""

from __future__ import annotations

import re
import unicodedata
from pathlib import Path

from agentkit_memory import Memory
from agentkit_memory.terms.analysis import split_words
from agentkit_memory.terms.bm25_vectors import document_vector, query_vector
from agentkit_prompts.ranking.folded_text import UNSPACED, fold_text

CASES = """
latin-polish | Kraków i Łódź są dużymi miastami | lodz
latin-polish | Zażółć gęślą jaźń | zazolc gesla
latin-danish | Rødgrød med fløde | rodgrod
latin-danish | Æblet falder ikke langt fra stammen | aeblet
latin-icelandic | Þórður býr í Reykjavík | thordur
latin-icelandic | Guðrún fór heim | gudrun
latin-maltese | Il-Ħamrun huwa raħal | hamrun
latin-croatian | Đorđe je došao | Dorde
latin-french | Le cœur a ses raisons | coeur
latin-french | L’été dernier à Paris | ete
latin-german | Die Straße ist groß | STRASSE
latin-german | Wert\xadpapier\xadindex steigt | Wertpapierindex
latin-german | Die Donau\xad¶dampfschifffahrt endet | Donaudampfschifffahrt
latin-turkish | Işık hızı çok yüksektir | isik
latin-turkish | İstanbul'da yağmur yağdı | istanbul
latin-turkish | DIYARBAKIR sıcaktır | Diyarbakır
latin-vietnamese | Đường phố Hà Nội rất đông | duong pho
latin-vietnamese | Tôi thích ăn phở bò | pho bo
latin-vietnamese | Nguye\u0302\u0303n Va\u0306n A | Nguyễn
latin-czech | Příliš žluťoučký kůň | zlutoucky kun
latin-hungarian | Árvíztűrő tükörfúrógép | arvizturo
latin-romanian | Şcoala din Iaşi | școală
latin-spanish | El niño comió una piña | pina
latin-catalan | La col·lecció del museu | colleccio
latin-hausa | Yaro ya ɗauki ɓera | dauki bera
latin-azeri | Gəncə böyük şəhərdir | gence
latin-hawaiian | Hawaiʻi has volcanoes | Hawaii
latin-esperanto | Ĉu vi ŝatas ĵurnalojn | satas
latin-sami | Sámi giella lea Ŋ ja đ | giella
latin-fullwidth | Ｔｏｋｙｏ２０２０ は終わった | tokyo2020
latin-ligature | The ﬁnal oﬃce ﬂoor | final office floor
latin-superscript | The Treaty¹ was signed in Paris | treaty
latin-superscript | The area is 5 m² large | m2
latin-trademark | We sell Brandex™ pumps | brandex
latin-zwsp | super\u200bcalifragilistic word | supercalifragilistic
latin-broken | The docu-¶mentation of the pump | documentation
latin-broken | Die Fernwärme-\r¶versorgung ist gut | Fernwärmeversorgung
latin-broken | A well-¶known fact | known
code-camel | HTTPServer calls parseXMLDocument | xml document
code-camel | HTTPServer calls parseXMLDocument | parsexmldocument
code-camel | def parse_xml_document(): pass | parseXmlDocument
code-snake | call max_retry_count here | retry
code-camel | The getUserName2Id method | user name
numbers | The budget is 1,250,000 euros | 1250000
numbers | Das Budget ist 1.250.000 Euro | 1250000
numbers | Le budget est de 1\u202f250\u202f000 euros | 1250000
numbers | Budget 1250000 euros | 1,250,000
numbers | Das kostet 1'250'000 Franken | 1250000
numbers | It costs 12,50,000 rupees | 1250000
numbers | ISBN 978-3-16-148410-0 | 9783161484100
numbers | x = 1_250_000 | 1250000
numbers | The price is 1,250,000.50 dollars | 1250000
numbers-arabic | الميزانية ١٬٢٥٠٬٠٠٠ دينار | 1250000
numbers-hindi | कीमत २५०० रुपये | 2500
greek | Ο ΔΡΟΜΟΣ ΕΙΝΑΙ ΜΕΓΑΛΟΣ | δρόμος
greek | Ὁ ἄνθρωπος θνητός | ανθρωπος
greek | Οι δρόμοι της Αθήνας | δρομος
cyrillic-russian | Ёлка стоит в углу | елка
cyrillic-russian | Мой зелёный чай | зеленый чаи
cyrillic-ukrainian | П'ять ґудзиків | пʼять
cyrillic-ukrainian | П’ять ґудзиків | гудзиків
cyrillic-ukrainian | Їжак їсть яблука | їжак
cyrillic-ukrainian | Книга лежить на столі | книги
armenian | Ինչպե՞ս եք | ինչպես
armenian | Հայաստանի մայրաքաղաքը Երևանն է | Երեւան
georgian | საქართველოს დედაქალაქი | საქართველო
georgian | ᲗᲑᲘᲚᲘᲡᲘ ლამაზია | თბილისი
georgian | თბილისში ვცხოვრობ | თბილისი
hebrew | בְּרֵאשִׁית בָּרָא אֱלֹהִים | בראשית
hebrew | צה״ל הודיע היום | צהל
hebrew | צה"ל הודיע היום | צה״ל
hebrew | הספרים על השולחן | ספר
hebrew | גר בירושלים | ירושלים
hebrew | בית־ספר גדול | ספר
yiddish | ייִדיש איז אַ שפּראַך | יידיש
arabic | كِتَابٌ جَدِيدٌ | كتاب
arabic | أحمد ذهب إلى المدرسة | احمد
arabic | أحمد ذهب إلى المدرسة | مدرسه
arabic | مستشفى كبير | مستشفي
arabic | كتـــاب جميل | كتاب
arabic | ﻛﺘﺎﺏ قديم | كتاب
arabic | والكتب كثيرة | كتب
persian | من می\u200cخواهم بروم | میخواهم
persian | من می\u200cخواهم بروم | خواهم
persian | كتاب\u200cهای علي | کتاب
persian | خانهٔ بزرگ | خانه
persian | سال ۱۴۰۲ بود | 1402
urdu | میں ہوں لاہور میں | لاهور
urdu | اُردُو زبان | اردو
pashto | پښتو ژبه | پښتو
uyghur | ئۇيغۇر تىلى | ئۇيغۇر
kurdish | کوردستان وڵاتە | كوردستان
devanagari | मुझे क\u093cलम चाहिए | कलम
devanagari | हिन्दी भाषा | हिंदी
devanagari | चाँद निकला | चांद
devanagari | ज\u093cरूर आना | ज\u093cरूर
devanagari | लड\u093cकियाँ खेलती हैं | लड\u093cकी
marathi | मराठी भाषा सुंदर आहे | सुन्दर
sanskrit | धर्मक्षेत्रे कुरुक्षेत्रे | धर्म\u200dक्षेत्रे
bengali | আমার বাংলাদেশের নদী | বাংলাদেশ
bengali | হঠাৎ বৃষ্টি | হঠাত্\u200d
bengali | বড\u09bc বাড\u09bcি | বড\u09bc
bengali | চাঁদ উঠেছে | চাঁদ
assamese | অসমীয\u09bcা ভাষা | অসমীয\u09bcা
gurmukhi | ਪੰਜਾਬੀ ਭਾਸ਼ਾ | ਪੰਜਾਬੀ
gurmukhi | ਜ਼ਮੀਨ ਵੱਡੀ | ਜਮੀਨ
gujarati | ગુજરાતમાં રહું છું | ગુજરાત
oriya | ଓଡ଼ିଆ ଭାଷା | ଓଡ଼ିଆ
tamil | சென்னையில் மழை | சென்னை
tamil | புத்தகங்கள் மேசையில் | புத்தகம்
telugu | హైదరాబాదులో వర్షం | హైదరాబాదు
telugu | తెలుగు భాష | తెలుగు
kannada | ಬೆಂಗಳೂರಿನಲ್ಲಿ ಮಳೆ | ಬೆಂಗಳೂರು
malayalam | അവൻ വന്നു | അവന്\u200d
malayalam | കേരളത്തിൽ മഴ | കേരളം
malayalam | മലയാളത്തിൽ സംസാരിക്കുന്നു | മലയാളം
sinhala | ශ්\u200dරී ලංකාව | ශ්රී
sinhala | කොළඹට යනවා | කොළඹ
thai | แมวกินปลาในครัว | ปลา
thai | ประเทศไทยปี ๒๕๖๗ | 2567
thai | ภาษา\u200bไทย | ภาษาไทย
thai | น้ำตกสวย | น้ำตก
lao | ປະເທດລາວສວຍງາມ | ລາວ
khmer | ខ្ញុំរស់នៅភ្នំពេញ | ភ្នំពេញ
khmer | ភាសា\u200bខ្មែរ | ភាសាខ្មែរ
burmese | ရန်ကုန်မြို့မှာနေတယ် | ရန်ကုန်
burmese | မြန်မာဘာသာစကား | ဘာသာ
tibetan | བོད་སྐད་ཡིན། | སྐད
tibetan | ལྷ་ས་གྲོང་ཁྱེར། | ལྷ་ས
ethiopic | ሰላም፡ለኢትዮጵያ | ኢትዮጵያ
amharic | ፀሐይ ወጣች | ጸሀይ
amharic | በአዲስ አበባ እኖራለሁ | አዲስ አበባ
amharic | ኢትዮጵያዊያን መጡ | ኢትዮጵያዊ
korean | 집에서 쉬었다 | 집은
korean | 책을 읽는다 | 책이
korean | \u1112\u1161\u11ab\u1100\u1173\u11af 공부 | 한글
korean | 학교에 갔다 | 학교에서
korean | 물 | 물이
japanese | ネコが好き | ねこ
japanese | ｻｰﾊﾞｰが落ちた | サーバー
japanese | サーバが落ちた | サーバー
japanese | 昨日は茶を飲んだ | 茶
japanese | 山に登った | 山
japanese | 人々が集まる | 人々
japanese | か\u3099っこうへ行く | がっこう
japanese | 東京都に住む | 東京
japanese | ㍿日本の社長 | 株式会社
chinese | 我家养了一只猫，名叫小白。 | 我的猫几岁了
chinese | 他很喜欢喝茶。 | 茶
chinese | 我家養了一隻貓 | 貓
chinese | 中国图书¶馆很大 | 书馆
chinese | 北京大学 | 清华和北京
chinese | ⼀口 | 一
mongolian | ᠮᠣᠩᠭᠣᠯ ᠬᠡᠯᠡ | ᠮᠣᠩᠭᠣᠯ
mongolian | ᠮᠣᠩ᠋ᠭᠣᠯ\u202fᠤᠨ | ᠮᠣᠩᠭᠣᠯ
cherokee | ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ | ꮳꮃꭹ
syriac | ܫܠܵܡܵܐ ܠܟ | ܫܠܡܐ
javanese | ꦧꦱꦗꦮ | ꦗꦮ
balinese | ᬪᬵᬱᬩᬮᬶ | ᬪᬵᬱᬩᬮᬶ
emoji | Great trip 🏖️ with friends | 🏖
emoji | 👍🏽 done | 👍
emoji | Visited 🇯🇵 last year | 🇯🇵
joined | co\u2060operation works | cooperation
broken | multi‐¶threaded server | multithreaded
broken | inter¬¶national trade | international
thai | น้ำท่วมถนนเมื่อวาน | นํ้า
amharic | ሰላም ለዓለም ይሁን | ለአለም
hyphen | an e-mail arrived | email
hyphen | email the editor | e-mail
hyphen | Das T-Shirt-Lager | tshirtlager
code | Item AB-1234-XZ is out | ab1234xz
code | Item AB1234XZ is out | AB-1234-XZ
telephone | Call +49 30 1234567 now | +49301234567
account | DE89 3704 0044 0532 0130 00 | DE89370400440532013000
card | 4111 1111 1111 1111 was charged | 4111111111111111
unit | It weighs 5kg | 5 kg
unit | It weighs 5 kg | 5kg
unit | 3.5GHz | 3.5 GHz
initials | He works at I.B.M. today | IBM
initials | The U.S.A won | usa
initials | the USA | U.S.A.
initials | O'Brien called | obrien
initials | O’Reilly and L’Oréal | oreilly
initials | L'Oréal sells it | loreal
initials | her Ph.D. thesis | PhD
hyphen | the wi\u2011fi is slow | wifi
hyphen | AB\u20101234 is out | ab1234
bidi | abc \u202bשלום\u202c def | שלום
"""
"""A script or kind of spelling, a text, and a question with a word of the text; `¶` is the end of a line."""


def test_a_word_is_found_in_each_script_and_spelling() -> None:
    missing = []
    for line in CASES.strip().split("\n"):
        _, text, question = line.replace("¶", "\n").split(" | ")
        terms = {*query_vector(question).indices}
        if not terms & {*document_vector(text).indices}:
            missing.append(line)
        assert not terms & {*document_vector("Something else entirely: 77 zebras.").indices}, line
    assert missing == []


def test_all_marks_are_inside_words() -> None:
    characters = map(chr, range(0x300, 0xFE30))
    marks = [each for each in characters if unicodedata.category(each)[0] == "M" and fold_text(each) == each]
    spaced = [each for each in marks if not re.match(f"[{UNSPACED}]", each)]
    assert spaced
    assert [each for each in spaced if split_words(f"a{each}b")[0] == "a"] == []


def test_a_question_of_stop_words_finds_texts_with_them(tmp_path: Path) -> None:
    texts = ["To be, or not to be, that is the question", "The Who are a band", "It is what it is"]
    with Memory(tmp_path / "home", scope="t") as memory:
        for text in [*texts, "Bananas grow in Ecuador."]:
            memory.documents.add(text, source=text)
        for question, text in zip(["to be or not to be", "who are the", "What is it?"], texts, strict=True):
            sources = [each.source for each in memory.recall(question).documents]
            assert sources[0] == text
            assert "Bananas grow in Ecuador." not in sources
