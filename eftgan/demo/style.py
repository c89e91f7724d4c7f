"""The look of the page: the fonts of the machine, one accent, pictures without smoothing, narrow screens in mind."""

FONTS = ("system-ui", "-apple-system", "Segoe UI", "Roboto", "Helvetica Neue", "Arial", "sans-serif")
MONO = ("ui-monospace", "SFMono-Regular", "Menlo", "Consolas", "monospace")

CSS = """
.gradio-container { padding: 0 !important; }
.gradio-container main { box-sizing: border-box; width: 100%; max-width: 1180px !important; margin: 0 auto !important;
  padding: 2.2rem 1.5rem 3rem !important; }
.gradio-container main main, .gradio-container .app:not(main) { padding: 0 !important; }
.gradio-container .html-container { padding: 0 !important; }
.eft-top h1 { font-size: 1.65rem; line-height: 1.2; letter-spacing: -.01em; margin: 0 0 .35rem; font-weight: 650; }
.eft-top p { margin: 0 0 1.1rem; color: var(--body-text-color-subdued); font-size: 1.02rem; max-width: 56rem; }
.eft-top dl {
  display: flex; flex-wrap: wrap; gap: .45rem 1.75rem; margin: 0; padding: .8rem 0 .9rem;
  border-top: 1px solid var(--border-color-primary); border-bottom: 1px solid var(--border-color-primary);
}
.eft-top dt { font-size: .74rem; color: var(--body-text-color-subdued); margin: 0; }
.eft-top dd { font-size: .92rem; margin: 0; font-weight: 500; }
.eft-seed { align-items: flex-end; }
.eft-button { font-weight: 500 !important; font-size: .92rem !important; min-height: 2.6rem; }
.eft-picture { margin: 0; display: flex; justify-content: center; }
.eft-picture img, .eft-columns img { image-rendering: pixelated; display: block; border-radius: 6px; background: #fff; }
.eft-picture img { width: 100%; max-width: 560px; max-height: 78vh; object-fit: contain; }
.eft-picture.wide { justify-content: flex-start; overflow-x: auto; margin-top: .9rem; }
.eft-picture.wide img { max-width: 100%; min-width: 520px; max-height: none; }
.eft-command, .eft-note { margin: .8rem 0 0; font-size: .82rem; color: var(--body-text-color-subdued); }
.eft-command code { font-family: var(--font-mono); font-size: .8rem; overflow-wrap: anywhere; user-select: all;
  background: none; border: 0; padding: 0; color: var(--body-text-color); }
.eft-columns { display: grid; grid-auto-flow: column; grid-auto-columns: minmax(132px, 230px); gap: 1.1rem;
  overflow-x: auto; padding-bottom: .5rem; }
.eft-columns h3, .eft-verdict h3 { font-size: .98rem; margin: 0 0 .5rem; font-weight: 600; }
.eft-columns figure { margin: 0 0 .9rem; }
.eft-columns img { width: 100%; }
.eft-columns figcaption { font-size: .78rem; color: var(--body-text-color-subdued); margin-top: .25rem; }
.eft-answers { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; }
.eft-verdict { flex: 1 1 280px; max-width: 520px; }
.eft-verdict .answer { margin: 0 0 .4rem; }
.eft-verdict .answer strong { font-size: 1.5rem; font-weight: 650; }
.eft-verdict .answer span { color: var(--body-text-color-subdued); margin-left: .35rem; }
.eft-verdict h4 { font-size: .8rem; font-weight: 600; margin: 1.1rem 0 .35rem; color: var(--body-text-color-subdued); }
.eft-verdict ul { list-style: none; margin: 0; padding: 0; }
.eft-verdict li { display: grid; grid-template-columns: minmax(6rem, 11rem) 1fr 3.6rem; gap: .7rem; align-items: center;
  font-size: .9rem; margin: 0; padding: .17rem 0; }
.eft-verdict .name { overflow-wrap: anywhere; }
.eft-verdict .bar { height: .55rem; border-radius: 4px; --fill: var(--neutral-400); background:
  linear-gradient(var(--fill), var(--fill)) 0 / calc(var(--share) * 100%) 100% no-repeat, var(--border-color-primary); }
.eft-verdict .first .bar { --fill: var(--color-accent); }
.eft-verdict .first .name { font-weight: 600; }
.eft-verdict .share { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 640px) {
  .gradio-container main { padding: 1.2rem .9rem 2rem !important; }
  .gradio-container .tab-container button { padding: 0 .6rem; }
  .eft-result { order: -1; }
  .eft-verdict li { grid-template-columns: 1fr 3.6rem; gap: .1rem .7rem; padding: .25rem 0; }
  .eft-verdict .name { grid-column: 1 / -1; }
  .eft-top h1 { font-size: 1.35rem; }
  .eft-columns { grid-auto-columns: minmax(132px, 44vw); gap: .8rem; }
}
"""
