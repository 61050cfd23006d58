"""How a report looks, and its search: text that stands in the file itself.

Enters: nothing. Leaves: CSS and JavaScript. Invariant: nothing is fetched; without scripts the page
is whole, only the search is missing. Colours are named once, for a light and for a dark page.
"""

from __future__ import annotations

# Forbids the page to fetch anything, whatever stands in it.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"

STYLE = """
:root{color-scheme:light dark;--back:#fff;--text:#1c2430;--dim:#5f6b7a;--line:#d8dee6;
--soft:#f4f6f9;
--link:#0b5cad;--bad:#b42318;--badback:#fdecea;--good:#13703b;--bar:#7fb0e6;--hit:#fff3c4}
@media (prefers-color-scheme:dark){:root{--back:#12161c;--text:#dde4ec;--dim:#93a0b0;
--line:#2b333d;
--soft:#1a2028;--link:#7cb7ff;--bad:#ff8f85;--badback:#35191a;--good:#6fd398;--bar:#2f6aa8;
--hit:#3a3414}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:76rem;padding:0 1rem 4rem;background:var(--back);color:var(--text);
font:16px/1.5 system-ui,sans-serif;overflow-wrap:anywhere}
h1{font-size:1.5rem;margin:1rem 0 .2rem}h2{font-size:1.25rem;margin:2rem 0 .5rem}
h3{font-size:1.05rem;margin:1.2rem 0 .3rem}h4{font-size:.95rem;margin:1rem 0 .2rem}
a{color:var(--link)}small,.dim{color:var(--dim)}
header input{width:100%;font:inherit;padding:.5rem .7rem;border:1px solid var(--line);
border-radius:.4rem;
background:var(--soft);color:inherit}
nav{position:sticky;top:0;background:var(--back);border-bottom:1px solid var(--line);
padding:.5rem 0;z-index:1}
nav ul{display:flex;gap:.2rem 1rem;overflow-x:auto;margin:.4rem 0 0;padding:0;list-style:none;
white-space:nowrap}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(7rem,1fr));gap:.5rem;padding:0;
margin:.5rem 0;
list-style:none}
.cards li{border:1px solid var(--line);border-radius:.4rem;padding:.4rem .6rem;
background:var(--soft)}
.cards b{display:block;font-size:1.3rem;line-height:1.2}.cards .bad b{color:var(--bad)}
details{border:1px solid var(--line);border-radius:.4rem;margin:.5rem 0;padding:0 .7rem}
details[open]{padding-bottom:.6rem}
summary{cursor:pointer;padding:.45rem 0;font-weight:600}summary small{font-weight:400}
pre{margin:.3rem 0;padding:.6rem;overflow-x:auto;background:var(--soft);border-radius:.4rem;
font:13px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;overflow-wrap:normal}
code{font:.9em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.92rem}
td,th{text-align:left;vertical-align:top;padding:.25rem .7rem .25rem 0;
border-bottom:1px solid var(--line);overflow-wrap:break-word}
td code{overflow-wrap:anywhere}
td.number{text-align:right;white-space:nowrap}
.bar{display:block;height:.7rem;min-width:2px;background:var(--bar);border-radius:.15rem}
.break{border-left:4px solid var(--bad);background:var(--badback);padding:.5rem .8rem;
margin:.5rem 0;
border-radius:.2rem}
.break p{margin:.2rem 0}.good{color:var(--good)}.bad{color:var(--bad)}
.source .hit,:target{background:var(--hit)}.note{font-size:.85em;margin-left:.6em}
ul.compiled{padding-left:1.2rem}
svg{max-width:100%}svg.plan{width:100%;height:180px;background:var(--soft);border-radius:.4rem}
svg.plan rect{fill:var(--bar);stroke:var(--back);stroke-width:.5}
.picture svg{max-width:none}
.gone{display:none!important}
@media print{nav{position:static}details{break-inside:avoid}}
"""

# Parts that say the words stay, and are opened; the others go until the words are gone. A link into
# a closed part opens it.
SCRIPT = """
"use strict";
const parts = [...document.querySelectorAll("[data-part]")];
const field = document.getElementById("search"), count = document.getElementById("found");
const texts = parts.map(one => one.textContent.toLowerCase());
const opened = new Set();
function search() {
  const words = field.value.toLowerCase().split(/\\s+/).filter(Boolean);
  let found = 0;
  parts.forEach((one, at) => {
    const fits = words.every(word => texts[at].includes(word));
    one.classList.toggle("gone", !fits);
    if (one.tagName === "DETAILS") {
      if (words.length && fits && !one.open) { one.open = true; opened.add(one); }
      if (!words.length && opened.delete(one)) one.open = false;
    }
    found += fits && !one.querySelector("[data-part]");
  });
  count.textContent = words.length ? found + " parts say so" : "";
}
field.addEventListener("input", search);
function follow() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (!target) return;
  for (let one = target; one; one = one.parentElement) {
    if (one.tagName === "DETAILS") one.open = true;
    one.classList.remove("gone");
  }
  target.scrollIntoView({block: "center"});
}
addEventListener("hashchange", follow);
follow();
"""
