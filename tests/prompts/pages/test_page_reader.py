"""Text of a page as a person sees it: without hidden text, with numbers, columns and lists."""

from __future__ import annotations

import pytest

pytest.importorskip("lxml", reason="needs the extra `ingest`")

from agentkit_prompts.pages.page_reader import page_blocks, page_text

HIDDEN = [
    # The page shows "seen" and hides "ZZZ".
    '<p>a</p><p style="display:none">ZZZ</p>',
    '<p>a</p><p style="DISPLAY : None !important">ZZZ</p>',
    '<p>a</p><p style="color:red;display:none;">ZZZ</p>',
    '<p>a</p><p style="display:/**/none">ZZZ</p>',
    '<p>a</p><p style="visibility:collapse">ZZZ</p>',
    '<p>a</p><div style="visibility:hidden">ZZZ<b style="visibility:visible">seen</b></div>',
    '<p>a</p><p style="font-size:0px">ZZZ</p>',
    '<p>a</p><p style="font-size: 0.0em">ZZZ</p>',
    '<p>a</p><p style="font:0/0 a">ZZZ</p>',
    '<p>a</p><td style="font-size:0px"><div style="font-size:13px">seen</div>',
    '<p>a</p><p style="font-size:1px">ZZZ</p>',
    '<p>a</p><p style="color:#fff;background:#fff">ZZZ</p>',
    '<p>a</p><p style="color:white;background-color:#FFFFFF">ZZZ</p>',
    '<p>a</p><p style="position:absolute;left:-9999px">ZZZ</p>',
    '<p>a</p><h1 style="text-indent:-9999px">ZZZ</h1>',
    '<p>a</p><p style="display:block;display:none">ZZZ</p>',
    '<p style="display:none;display:block">seen</p>',
    '<style>.h{display:none}</style><p>a</p><p class="x h">ZZZ</p>',
    '<style>.h, .i {display:none}</style><p>a</p><span class="i">ZZZ</span>',
    "<style>p.h{display:none}#k{visibility:hidden}</style><p>a</p><p class=h>ZZZ</p><p id=k>ZZZ</p>",
    "<style>.h{font-size:0}</style><p>a</p><p class=h>ZZZ</p>",
    "<style>@media print{.h{display:none}}</style><p class=h>seen</p>",
    "<style>.tab{display:none}.tab.on{display:block}</style><p class=tab>seen</p>",
    "<style>.p{display:none}@media (min-width:1px){.p{display:block}}</style><p class=p>seen</p>",
    "<style>.a .b{display:none}</style><p class=b>seen</p>",
    "<style media=print>p{display:none}</style><p>seen</p>",
    '<style>.h{display:none}</style><p class=h style="display:block">seen</p>',
    "<style>body{visibility:hidden}</style><p>seen</p>",
    "<style>.h{visibility:hidden}.h.on{visibility:visible}</style><p class=h>seen</p>",
    "<style>.h{opacity:0}</style><p>a</p><p class=h>ZZZ</p>",
    "<style>.h{opacity:0}.h.on{opacity:1}.i{opacity:0;transition:.2s}</style><p class=h>seen</p><p class=i>seen</p>",
    "<style>.h{max-height:0;overflow:hidden}.h.open{max-height:9em}</style><p class=h>seen</p>",
    "<style>.sr-only{clip:rect(0,0,0,0)}.katex-mathml{position:absolute;left:-9999px}</style><p class=sr-only>seen</p>"
    "<i class=katex-mathml>seen</i>",
    *(
        f'<p>a</p><p style="{style}">ZZZ</p>'
        for style in (
            "opacity:0",
            "opacity:0.0",
            "filter:opacity(0%)",
            "position:absolute;clip:rect(0,0,0,0)",
            "clip:rect(1px 1px 1px 1px)",
            "clip-path:inset(100%)",
            "clip-path: inset(50%)",
            "clip-path:circle(0)",
            "height:0;overflow:hidden",
            "width:0px; overflow:hidden",
            "max-height:0;overflow:clip",
            "transform:scale(0)",
            "transform:translateX(-9999px)",
            "text-indent:-999em",
            "margin-left:-9999px",
            "position:absolute;top:-200vh",
            "position:fixed;left:-1000px",
            "color:transparent",
            "color:rgba(0, 0, 0, 0)",
            "color:#0000",
            "content-visibility:hidden",
        )
    ),
    *(
        f'<p style="{style}">seen</p>'
        for style in (
            "opacity:0.5",
            "opacity:0;animation:show 1s forwards",
            "clip:rect(0,9px,9px,0)",
            "clip-path:inset(10%)",
            "height:0",
            "height:10px;overflow:hidden",
            "transform:scale(0.5)",
            "transform:translate(-50%,-50%)",
            "margin-left:-15px",
            "text-indent:-2em",
            "position:relative;left:-20px",
            "color:transparent;-webkit-background-clip:text",
            "color:rgba(0,0,0,.5)",
        )
    ),
    "<div inert>seen</div>",
    "<p>a</p><p hidden>ZZZ</p>",
    '<p>a</p><p hidden="">ZZZ</p>',
    "<p>a</p><p hidden=hidden>ZZZ</p>",
    '<p hidden="until-found">seen</p>',
    '<p>a</p><i aria-hidden="true">ZZZ</i>',
    '<p aria-hidden="false">seen</p>',
    '<body aria-hidden="true"><main aria-hidden=true>seen</main>',
    "<p>a</p><div popover>ZZZ</div>",
    "<dialog open>seen</dialog><dialog>ZZZ</dialog>",
    "<details><summary>sum</summary>seen</details>",
    '<template>ZZZ</template><template shadowrootmode="open"><p>seen</p></template>',
    "<object data=x><p>seen</p></object>",
    "<svg><title>ZZZ</title><text>seen</text></svg>",
    "<p>a</p><noscript>ZZZ</noscript><script>ZZZ</script><!-- ZZZ -->",
    "<select><option>ZZZ<option selected>seen</select>",
    '<input type=hidden value=ZZZ><input value=seen><input type=submit value="Send">',
    "<h2><button>seen</button></h2>",
    '<h2>seen<a class=headerlink href="#x">¶</a></h2>',
    "<nav>ZZZ</nav><div role=navigation>ZZZ</div><p>seen</p>",
    "<p>seen</p><footer>ZZZ</footer>",
    "<article><p>a</p><footer>seen</footer></article>",
    '<p>seen</p><div class="cookie-banner"><p>ZZZ</p><button>ZZZ</button></div>',
    '<p>seen</p><div id="onetrust-consent-sdk">ZZZ</div><div id="CybotCookiebotDialog">ZZZ</div>',
    '<p>seen</p><div id=cookie-notice class="x y">ZZZ</div><div class="cc-window cc-banner">ZZZ</div>',
    '<section id="cookie-consent"><h2>Cookie consent</h2>seen</section>',
    '<p>seen</p><div id=footer>ZZZ</div><ul class=breadcrumb><li>ZZZ</ul><a class="skip-link" href="#m">ZZZ</a>',
]

TEXTS = [
    ("<p>10<sup>6</sup> parts", "10^6 parts"),
    ("<p>H<sub>2</sub>O and CO<sub>2</sub>", "H2O and CO2"),
    ("<p>101<sub>2</sub> is 5", "101_2 is 5"),
    ("<p>log<sub>2</sub>8", "log_2 8"),
    ("<p>x<sub>max</sub>, 2<sup>n+1</sup>, 10<sup>-6</sup>", "x_max, 2^(n+1), 10^-6"),
    ("<p>1<sup>st</sup>, Foo<sup>TM</sup> Bar<sup>®</sup>", "1st, FooTM Bar®"),
    ("<p>3<sup>1</sup>/<sub>2</sub> cups and <sup>1</sup>/<sub>4</sub>", "3 1/2 cups and 1/4"),
    ('<p>1998<sup><a href="#n2">2</a></sup>.', "1998[2]."),
    ('<p>1998<sup class="reference"><a href="#n2">[2]</a></sup>.', "1998[2]."),
    ('<p>1998<a href="#fn1"><sup>1</sup></a>.', "1998[1]."),
    ("<p>m<sup>2</sup>", "m^2"),
    ("<p>Ca<sup>2+</sup>", "Ca^2+"),
    ("<p>2<sup>2<sup>n</sup></sup>", "2^(2^n)"),
    ("<p>f <math><mfrac><mrow><mi>a</mi><mo>+</mo><mi>b</mi></mrow><mi>c</mi></mfrac></math>", "f (a+b)/c"),
    ("<p>f <math><msup><mn>10</mn><mn>6</mn></msup></math> x", "f 10^6 x"),
    (
        '<p>f <span class="MathJax_Preview">ZZZ</span><span class=MathJax><nobr aria-hidden=true>ZZZ'
        "</nobr><span class=MJX_Assistive_MathML><math><mi>E</mi></math></span></span>"
        '<script type="math/tex">ZZZ</script>.',
        "f E.",
    ),
    ('<p>f <script type="math/tex">E=mc^2</script>.', "f E=mc^2."),
    (
        "<p>f <mjx-container><mjx-math aria-hidden=true>ZZZ</mjx-math><mjx-assistive-mml><math><msub>"
        "<mi>x</mi><mn>1</mn></msub></math></mjx-assistive-mml></mjx-container>.",
        "f x_1.",
    ),
    ("<p>f <span class=katex><span class=katex-html aria-hidden=true>E=mc2</span></span>.", "f E=mc2."),
    ('<p>f <math alttext="a/b"></math>.', "f a/b."),
    (
        "<p>f <math><mtable><mtr><mtd>1</mtd><mtd>2</mtd></mtr><mtr><mtd>3</mtd><mtd>4</mtd></mtr></mtable></math>.",
        "f 1 2; 3 4.",
    ),
    ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
    ("<ol start=5><li>a<li value=9>b<li>c</ol>", "5. a\n9. b\n10. c"),
    ("<ol reversed start=3><li>a<li>b</ol>", "3. a\n2. b"),
    ("<ol type=a><li>a<li>b</ol><ol type=I><li>x<li>y</ol>", "a. a\nb. b\nI. x\nII. y"),
    ("<ol><li>a<ul><li>n</ul><li>b</ol>", "1. a\n  - n\n2. b"),
    ("<ol><li>a<ol><li>n</ol></li><li>b</li></ol>", "1. a\n  1. n\n2. b"),
    (
        '<ul class="contains-task-list"><li class="task-list-item">'
        '<input type="checkbox" class="task-list-item-checkbox" disabled checked> Done</li>'
        '<li class="task-list-item"><input type="checkbox" disabled=""> Open</li></ul>',
        "- [x] Done\n- [ ] Open",
    ),
    (
        "<ul><li><label><input type=checkbox checked><span></span></label><div><p>Done</p></div></li></ul>",
        "- [x] Done",
    ),
    ('<ol><li data-list="checked">a<li data-list="unchecked">b</ol>', "1. [x] a\n2. [ ] b"),
    ("<ul><li role=checkbox aria-checked=true>a<li role=checkbox aria-checked=false>b</ul>", "- [x] a\n- [ ] b"),
    ("<label><input type=radio checked>A</label> <label><input type=radio>B</label>", "(x) A ( ) B"),
    ("<table><tr><th></th><th>x</th></tr><tr><td>a</td><td>1</td></tr></table>", "| x\na | 1"),
    ("<table><tr><td>a</td><td></td><td>c</td></tr></table>", "a |  | c"),
    ("<table><tr><td>a</td><td>b</td><td></td></tr></table>", "a | b |"),
    ("<table><tr><td rowspan=2>N</td><td>O</td></tr><tr><td>B</td></tr></table>", "N | O\nN | B"),
    (
        "<table><tr><td colspan=2>T</td><td>x</td></tr><tr><td>1</td><td>2</td><td>3</td></tr></table>",
        "T |  | x\n1 | 2 | 3",
    ),
    ("<table><tr><td>a</td><td rowspan=2>R</td></tr><tr><td>b</td></tr></table>", "a | R\nb | R"),
    (
        "<table><tr><td>a</td><td rowspan=2 colspan=2>R</td><td>z</td></tr><tr><td>b</td><td>y</td></tr></table>",
        "a | R |  | z\nb | R |  | y",
    ),
    ("<table><tr><td>a<br>b</td><td><ul><li>x<li>y</ul></td></tr></table>", "a b | - x - y"),
    ("<table><caption>Cap</caption><tr><td>a<td>b</table>", "Cap\na | b"),
    (
        "<table><tr><th>P<th>L</tr><tr><td>Pro<td><table><tr><td>C<td>4<tr><td>R<td>8</table></table>",
        "P | L\nPro | C, 4; R, 8",
    ),
    ("<table><tr><td><table><tr><td>a<td>b<tr><td>c<td>d</table></table>", "a | b\nc | d"),
    ("<table role=presentation><tr><td>a</td><td>b</td></tr></table>", "a\nb"),
    ("<table><thead><tr><th>x<th>y<tbody><tr><td rowspan=0>a<td>1<tr><td>2</table>", "x | y\na | 1\na | 2"),
    ("<table><td>a<td>b</table>", "a | b"),
    ("<pre><div>a</div><div>  b</div></pre>", "a\n  b"),
    ("<pre><div>a</div>\n<div>  b</div></pre>", "a\n  b"),
    ("<pre><span class=line>a</span>\n<span class=line>b</span></pre>", "a\nb"),
    ("<pre>a<br>b<button>ZZZ</button></pre>", "a\nb"),
    ("<pre><ol><li>a</li><li>b</li></ol></pre>", "a\nb"),
    (
        "<table class=highlighttable><tr><td class=linenos><pre>1</pre></td><td class=code><pre>x = 1"
        "</pre></td></tr></table>",
        "x = 1",
    ),
    ("<textarea>a\n b</textarea>", "a\n b"),
    ("<p>これは<ruby>漢<rt>かん</rt>字<rt>じ</rt></ruby>です", "これは漢字です (漢字: かんじ)"),
    ("<p><ruby>漢<rp>(</rp><rt>かん</rt><rp>)</rp></ruby><ruby>字<rt>じ</rt></ruby>x", "漢字x (漢字: かんじ)"),
    ("<p><ruby>漢字<rt>かんじ</ruby>x", "漢字x (漢字: かんじ)"),
    ("<p><ruby>食<rt>た</rt></ruby>べる", "食べる (食: た)"),
    ("<p><ruby>重<rt>・</rt>要<rt>・</rt></ruby>だ", "重要だ"),
    ("<dl><dt>T<dd>d<dt>U<dd>e</dl>", "T\nd\nU\ne"),
    ("<p><del>$99</del>$49", "~~$99~~$49"),
    ("<p>He said <q>hi</q>", 'He said "hi"'),
    ("<p>a &lt; b &amp;amp; c&nbsp;d", "a < b &amp; c d"),
    ("<title>Tea - Shop</title><h1>Tea</h1><p>x", "Shop\nTea\nx"),
    ("<title>Tea</title><h1>Tea</h1><p>x", "Tea\nx"),
    ("<title>Tea</title><p>x", "Tea\nx"),
    ("<title>Tea</title><p>y<h1>Tea</h1><p>x", "Tea\ny\nTea\nx"),
]


@pytest.mark.parametrize("page", HIDDEN)
def test_hidden_text_is_omitted_and_visible_text_stays(page: str) -> None:
    text = page_text(f"<!doctype html>{page}")
    assert "ZZZ" not in text
    assert text.count("seen") == page.count("seen")


@pytest.mark.parametrize(("page", "text"), TEXTS)
def test_the_structure_of_a_page_is_kept_in_its_text(page: str, text: str) -> None:
    assert page_text(f"<!doctype html>{page}") == text


@pytest.mark.parametrize("start", ["<nav>", "<footer>", "<div class=navbar>"])
def test_a_part_with_much_text_is_content(start: str) -> None:
    words = "word " * 400
    assert page_text(f"{start}<p>{words}</p>") == words.strip()
    links = f"<a href=x>{words}</a>"
    assert page_text(f"<p>seen</p>{start}{links}") == "seen"


@pytest.mark.parametrize(
    ("start", "style"),
    [
        ('<nav style="display:none">', ""),
        ('<div class=navbar style="display:none">', ""),
        ('<footer style="visibility:hidden">', ""),
        ("<nav style=font-size:0>", ""),
        ('<div style="visibility:hidden"><nav>', ""),
        ('<div style="font-size:1px"><footer>', ""),
        ('<p style="position:fixed;left:-9999px" role=navigation>', ""),
        ('<div style="visibility:hidden"><div class=h>', ".h{display:none}"),
        ("<footer class=h>", ".h{font-size:0}"),
        ("<div class=h>", ".h{display:none}"),
    ],
)
def test_a_hidden_part_with_much_text_stays_hidden(start: str, style: str) -> None:
    assert page_text(f"<style>{style}</style><p>seen</p>{start}" + "ZZZ " * 400) == "seen"


def test_the_title_of_a_page_is_a_heading_above_its_headings() -> None:
    page = "<title>Tea - Shop</title><h1>Tea</h1><p>x"
    assert [(block.level, block.title, block.text) for block in page_blocks([page])] == [
        (0, "Shop", ""),
        (1, "Tea", "Tea\n\n"),
        (0, "", "x\n\n"),
    ]


@pytest.mark.parametrize(
    "page",
    [
        "<table>" + "<tr><td rowspan=65534>" + "x" * 150 + "<td>y" * 50 + "</table>",
        "<table>" + "<tr><td colspan=1000>a<td colspan=1000>b" * 2000,
        "<ruby>" * 5000 + "<rt>" * 5000,
        "<sup>" * 20_000 + "x",
        "<nav>" * 20_000 + "x",
        "<style>" + ".a{display:none}" * 20_000 + "</style>" + "<p class=a>x" * 100,
        "<math>" + "<mfrac>" * 20_000 + "x",
    ],
    ids=["rowspan", "colspan", "ruby", "sup", "nav", "style", "math"],
)
def test_the_text_of_a_hostile_page_is_not_much_longer_than_the_page(page: str) -> None:
    assert len(page_text(page)) <= 20 * len(page)
