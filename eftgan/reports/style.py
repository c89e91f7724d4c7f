"""The page's style sheet: quiet, readable on a phone, in the dark and on paper."""

COLOURS = """
:root {
  color-scheme: light dark;
  --paper: #ffffff; --ink: #1d2226; --soft: #565f66; --rule: #d9dee2; --tint: #f5f7f8;
  --accent: #0b5c8a; --caution: #8a3b00;
  --s0: #0b5c8a; --s1: #b5440b; --s2: #2f7d4f; --s3: #7a4fa3; --s4: #8a6d00; --s5: #a12a5e;
  --s6: #5e5e5e; --s7: #00808a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14181b; --ink: #e4e8ea; --soft: #a3adb3; --rule: #333b41; --tint: #1c2226;
    --accent: #7cc0ec; --caution: #f0a868;
    --s0: #7cc0ec; --s1: #f2985f; --s2: #7fcf9f; --s3: #c3a2e6; --s4: #dcc25a; --s5: #f08fb8;
    --s6: #bdbdbd; --s7: #5fd3da;
  }
}
"""

FIGURES = """
svg text {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
svg { max-width: 100%; height: auto; display: block; }
svg text { font-size: 13px; fill: var(--ink); }
svg text.axis { fill: var(--soft); }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .line { fill: none; stroke-width: 2; stroke: currentColor; }
svg .thin { stroke-width: 1.2; }
svg .mark { fill: currentColor; }
svg .name { fill: currentColor; font-weight: 600; }
svg .ref { color: var(--soft); }
svg .line.ref { stroke-dasharray: 4 4; stroke-width: 1.3; }
.s0 { color: var(--s0); } .s1 { color: var(--s1); } .s2 { color: var(--s2); }
.s3 { color: var(--s3); } .s4 { color: var(--s4); } .s5 { color: var(--s5); }
.s6 { color: var(--s6); } .s7 { color: var(--s7); }
"""

CSS = (
    f"{COLOURS}{FIGURES}"
    """
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0 auto; padding: 3rem 1.5rem 5rem; max-width: 66rem; background: var(--paper); color: var(--ink);
  font: 1rem/1.55 Charter, "Bitstream Charter", "Source Serif 4", Cambria, Georgia, serif;
}
h1, h2, h3, table, figcaption, .note, dt, summary {
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif;
}
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; margin: 3.2rem 0 .8rem; padding-top: .9rem; border-top: 1px solid var(--rule); }
h3 { font-size: 1rem; margin: 1.6rem 0 .5rem; }
p { margin: 0 0 .8rem; max-width: 44rem; }
.lead { color: var(--soft); margin-bottom: 1.6rem; }
.summary { font-size: 1.08rem; }
.caution { border-left: 3px solid var(--caution); padding: .1rem 0 .1rem .9rem; }
a { color: var(--accent); }
.scroll { overflow-x: auto; margin: 1rem 0 .3rem; }
.cards { display: flex; flex-wrap: wrap; gap: .6rem; margin: .8rem 0; }
.cards figure { margin: 0; content-visibility: auto; contain-intrinsic-size: 96px 120px; }
.cards img { width: 96px; height: auto; margin-right: 2px; image-rendering: pixelated; }
.cards figcaption { font-size: .75rem; max-width: 196px; overflow-wrap: anywhere; }
.cards figure[hidden] { display: none; }
table { border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0 0 .5rem; }
caption span { display: inline-block; position: sticky; left: 0; max-width: calc(100vw - 3rem); }
thead tr:first-child th { border-top: 1.5px solid var(--ink); }
thead tr:last-child th { border-bottom: 1px solid var(--ink); }
tbody tr:last-child > * { border-bottom: 1.5px solid var(--ink); }
tbody tr + tr > * { border-top: 1px solid var(--rule); }
th, td { padding: .38rem .55rem; text-align: right; white-space: nowrap; font-weight: normal; }
thead th { font-weight: 600; color: var(--soft); }
th.group { text-align: center; color: var(--ink); }
.first { border-left: 1px solid var(--rule); }
th:first-child { text-align: left; position: sticky; left: 0; background: var(--paper); padding-left: 0; }
tbody th { font-weight: 600; }
td.text { text-align: left; }
td.best { font-weight: 700; }
.spread { font-size: .85em; color: var(--soft); font-weight: normal; }
td.muted { color: var(--soft); }
.note { font-size: .8rem; line-height: 1.45; color: var(--soft); margin: .3rem 0 1rem; max-width: 52rem; }
figure { margin: 1.2rem 0; }
figcaption { font-size: .84rem; color: var(--soft); margin-top: .4rem; max-width: 52rem; }
.maps { display: flex; flex-wrap: wrap; gap: 1.2rem 2.4rem; align-items: flex-start; }
.maps > div { max-width: 100%; overflow-x: auto; }
figure > svg { margin-top: .8rem; }
.maps h3 { margin: 0 0 .2rem; }
table.samples th, table.samples td { padding: .25rem; text-align: center; border: 0; vertical-align: middle; }
table.samples th:first-child { text-align: left; padding-right: .7rem; }
table.samples td.real { padding-right: .9rem; }
table.samples img { display: block; width: 9.2rem; height: auto; border-radius: 3px; }
table.samples .just { outline: 2px solid var(--accent); outline-offset: 1px; }
details { margin: .6rem 0; }
summary { cursor: pointer; font-size: .9rem; }
pre, code { font: .8rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--tint); padding: .8rem 1rem; border-radius: 4px; overflow-x: auto; margin: .4rem 0 1rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1.2rem; font-size: .88rem; margin: 0; }
dt { color: var(--soft); } dd { margin: 0; overflow-wrap: anywhere; min-width: 0; }
@media (min-width: 40.01rem) {
  .scroll table:not(.samples) tr > :last-child { position: sticky; right: 0; background: var(--paper); }
}
@media (max-width: 40rem) {
  body { padding: 1.6rem 1rem 3rem; }
  h1 { font-size: 1.35rem; }
  caption span { max-width: calc(100vw - 2rem); }
  .scroll { margin-right: -1rem; padding-right: 1rem; }
  table.samples img { width: 5.4rem; }
  thead th { white-space: normal; vertical-align: bottom; }
}
@media print {
  :root { --paper: #fff; --ink: #000; --soft: #444; --rule: #bbb; --tint: #f4f4f4; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  .scroll { overflow: visible; }
  table { font-size: 7.5pt; } th, td { padding: .2rem .3rem; } th:first-child { position: static; }
  table.samples img { width: 3.2cm; }
  h2 { break-after: avoid; } figure, table, .maps > div { break-inside: avoid; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
}
"""
)
