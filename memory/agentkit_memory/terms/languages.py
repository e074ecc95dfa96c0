"""Detection of the languages of a text by its most common words, and stemmers of words.

The stemmers are from `snowballstemmer`. Languages are detected from a whole text, as one word may occur in many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from itertools import chain
from threading import Lock

from agentkit_memory.errors import StoreUnavailable
from agentkit_prompts.extras import install

ENGLISH = "english"

_COMMON: Mapping[str, str] = {
    "english": """a about above after again all also am an and any are as at be because been before being below between
        both but by can could did do does doing down during each few for from further had has have having he her here
        hers herself him himself his how i if in into is it its itself just me more most my myself no nor not now of
        off on once only or other our ours ourselves out over own s same she should so some such t than that the their
        theirs them themselves then there these they this those through to too under until up us very was we were what
        when where which while who whom why will with would you your yours yourself yourselves don didn doesn isn wasn
        aren weren won wouldn couldn shouldn ll ve re d m""",
    "basque": "eta da ez bat du dut zen dira baina ere hau hori duen izan egin dago nola zer non gure nire nor dute",
    "catalan": """el la els les de i un una en que per amb és no al del són com més però on què hi ha molt seu meva
        em et es aquest aquesta va fer estan té qui quan""",
    "czech": """a je na se v že to s z jsou i do jak ale by pro za co byl byla jeho její kde kdo má které který jsem
        není ve tam mám si mi""",
    "danish": """og i at det er en den til på som for med af de ikke der et jeg har var kan hvor hvad hun han vi du min
        mit mine sig fra om blev""",
    "dutch": """de het een en van is ik dat niet in op te zijn er voor met die was maar aan om ook hij zij waar wat
        heeft bij wij mijn je we ze nog naar hoe deze dit""",
    "esperanto": "la kaj de estas en mi ne vi ke al por kun sed ĉu kie kiu kio li ŝi oni estis pri havas miaj mia",
    "estonian": "ja on ei see et ta oli kui ma mis kus ka aga oma kes siis need nad me seal kas väga minu",
    "finnish": "ja on ei se että hän oli kun mutta myös mikä missä minä kuka joka ovat ole niin tämä kanssa sen mitä",
    "french": """le la les de des du et un une est en que qui dans pour ne pas il elle sur au aux avec ce sont où je
        vous nous mon ma mes ses son plus quel quelle très cette l d qu c n y a ont""",
    "german": """der die das und ist in zu den nicht ein eine einen mit von für auf sich dem des im wo was wer wie sind
        war er sie es ich wir hat haben auch wird mein meine am an bei nach wann alle aus über du""",
    "hungarian": "a az és nem hogy is egy van volt ez meg csak hol mi ki mit milyen ezek vannak én ő nagyon már",
    "indonesian": """yang dan di ke dari ini itu untuk dengan tidak adalah pada saya dia ada akan apa mana siapa kami
        telah oleh sudah""",
    "irish": "an na agus is tá ar le go ní sé sí bhí i do mé cá cad atá ag seo sin mo",
    "italian": """il lo la i gli le di e è un una uno che non per in con del della dei sono come dove chi ma si al mio
        mia sua suo ha questo questa quale nel più molto""",
    "lithuanian": "ir yra kad ne su iš į tai bet kaip buvo aš jis ji kur kas už nuo apie mano mes labai",
    "norwegian": """og i det er en den til på som for med av ikke et jeg har var kan hvor hva hun han vi du min mitt fra
        om ble seg""",
    "polish": """i w nie na się z jest to że do jak ale są co był była gdzie kto ma jego dla przez oraz od czy moja mój
        mam bardzo""",
    "portuguese": """o a os as de do da dos das e em um uma que não para com é por são no na mais onde quem ele ela eu
        meu minha está foi seu sua muito mas como qual""",
    "romanian": "și în la de a nu cu este un o pe care din ce sunt unde cine mai fi au al lui să pentru era am foarte",
    "serbian": """i je u da se na su ne za sa nije od to ali kao gde ko šta bio moj njegov и је у да се на су не за са
        није од то али као где ко шта био мој његов""",
    "sesotho": "ke le ho ba ya e o sa tsa ka mme ha hore eo tse fa mo bona hae re di",
    "spanish": """el la los las de y un una en que es no se por con del al su para está están son como pero dónde quién
        qué mi mis me te le nos más lo fue hay muy cuál este esta""",
    "swedish": """och i att det är en den till på som för med av inte ett jag har var kan hon han vi du min mitt från de
        om vad sig blev""",
    "turkish": "ve bir bu da de için ile çok ne var mi değil ben o daha gibi kim nerede ama olan olarak şu",
    "russian": "и в не на я что он с а как это по но она у мой моя где кто из был была за к о мы вы есть очень",
    "arabic": "في من على إلى أن هو هي هذا هذه كان ما لا عن التي الذي أين مع كل",
    "persian": "و در به از که این است را با برای آن یک های بود کجا هم من ما",
    "hindi": "है का के की में और से को यह एक हैं नहीं पर था कहाँ",
    "nepali": "छ को मा र हो छन् यो पनि का ले थियो कहाँ",
    "greek": "",
    "armenian": "",
    "tamil": "",
    "yiddish": "",
}
"""Common words by language; empty if the script identifies the language."""

LANGUAGES = tuple(_COMMON)
STOP_WORDS = frozenset(_COMMON[ENGLISH].split())
"""English words that are not searched for."""

_SCRIPTS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("\u0370", "\u03ff", ("greek",)),
    ("\u0400", "\u052f", ("russian", "serbian")),
    ("\u0530", "\u058f", ("armenian",)),
    ("\u0590", "\u05ff", ("yiddish",)),
    ("\u0600", "\u06ff", ("arabic", "persian")),
    ("\u0900", "\u097f", ("hindi", "nepali")),
    ("\u0b80", "\u0bff", ("tamil",)),
    ("\u1f00", "\u1fff", ("greek",)),
)
"""First and last letter of a script, and the languages that are written in it."""
_NOT_LATIN = frozenset(chain.from_iterable(names for _, _, names in _SCRIPTS)) - {"serbian"}
"""Languages that are never written in Latin script; Serbian is written in both scripts."""
_LATIN = tuple(name for name in LANGUAGES if name not in _NOT_LATIN)
_MAX_LATIN = "\u024f"
"""Last letter of the Latin script."""
_NONE: tuple[str, ...] = ()

_VOTES: dict[str, int] = {}
"""One byte per language, by word: 1 if the word is common in the language. No language has more than 255 words, so that
sums do not carry."""
for _number, _words in enumerate(_COMMON.values()):
    for _word in _words.split():
        _VOTES[_word] = _VOTES.get(_word, 0) | 1 << 8 * _number

_COMMON_WORDS = frozenset(_VOTES)
_UNKNOWN: frozenset[str] = frozenset()
_ONLY_ENGLISH = frozenset((ENGLISH,))

_MIN_SHARE = 0.6
"""Minimum share of the highest votes for another likely language: many languages have similar words."""
_LOCK = Lock()


def find_languages(words: Iterable[str]) -> frozenset[str]:
    """Return the likely languages of a text by its folded words; empty without common words."""
    common = _COMMON_WORDS.intersection(words)
    if not common:
        return _UNKNOWN
    votes = sum(map(_VOTES.__getitem__, common)).to_bytes(len(LANGUAGES), "little")
    highest = max(votes)
    # English is the first language. For most texts, no new set has to be created.
    if votes[0] == highest and votes.count(highest) == 1:
        return _ONLY_ENGLISH
    return frozenset([name for name, count in zip(LANGUAGES, votes, strict=True) if count >= _MIN_SHARE * highest])


def script_of(word: str) -> tuple[str, ...]:
    """Return the languages that are written in the script of a word; none if the script has no stemmer."""
    first = word[0]
    if first <= _MAX_LATIN:
        return _LATIN
    return next((names for start, end, names in _SCRIPTS if start <= first <= end), _NONE)


def stem(word: str, language: str) -> str:
    """Return the stem of a folded word in a language.

    Raises:
        StoreUnavailable: The stemmers are not installed.
    """
    # A stemmer has state, so that only one thread may use it.
    with _LOCK:
        return _stemmer(language)(word)


@lru_cache(maxsize=64)
def _stemmer(language: str) -> Callable[[str], str]:
    try:
        import snowballstemmer
    except ImportError as missing:
        raise StoreUnavailable(
            f"recall needs the stemmers of snowballstemmer: {install('vector')}", name="vector"
        ) from missing
    stemmer: Callable[[str], str] = snowballstemmer.stemmer(language).stemWord
    return stemmer
