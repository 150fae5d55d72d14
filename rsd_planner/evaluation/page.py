"""The page's frame: markup and style, nothing loaded from elsewhere."""

from __future__ import annotations

from html import escape

from rsd_planner.evaluation.theme import css_variables

STYLE = """
*{box-sizing:border-box}
body{margin:0;background:var(--page);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",sans-serif}
main{max-width:1280px;margin:0 auto;padding:24px 20px 60px}
h1{font-size:26px;margin:0 0 2px}h2{font-size:19px;margin:36px 0 8px}
p{margin:4px 0 10px}header p,section>p,figcaption,.facts{color:var(--muted)}
.warnings{list-style:none;margin:16px 0;padding:0;border:1px solid var(--alert);border-radius:8px;
background:var(--alert-page)}
.warnings li{padding:8px 14px 8px 38px;position:relative;white-space:pre-line}
.warnings li::before{content:"!";position:absolute;left:14px;font-weight:700;color:var(--alert)}
.warnings li+li{border-top:1px solid var(--alert-line)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:12px}
.tile,article,.figures figure{background:var(--card);border:1px solid var(--grid);border-radius:8px}
.tile{padding:12px 14px;display:flex;flex-direction:column}
.tile span,.tile small{color:var(--muted);font-size:13px}.tile b{font-size:25px;line-height:1.3}
article{padding:14px;margin:0 0 14px}
.scene{display:grid;grid-template-columns:minmax(0,2fr) minmax(0,3fr);gap:14px;align-items:center}
.cameras{display:grid;gap:6px;grid-template-columns:repeat(var(--others),1fr)}
.cameras figure:first-child{grid-column:1/-1}
figure{margin:0}img{width:100%;display:block;border-radius:5px}figcaption{font-size:12px}
svg{width:100%;height:auto;display:block}svg text{font-family:inherit!important}
blockquote{margin:12px 0 6px;padding:4px 14px;border-left:4px solid var(--plan);font-size:17px;white-space:pre-line}
.facts{display:flex;flex-wrap:wrap;gap:2px 20px;font-size:13px;margin:0}
.withheld{color:var(--alert);font-weight:600;margin:4px 0}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:14px;margin-top:14px}
.figures.wide{grid-template-columns:1fr}.figures figure{padding:10px}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}
th,td{padding:5px 16px 5px 0;text-align:right;border-bottom:1px solid var(--grid);vertical-align:top}
th{color:var(--muted);font-weight:600;font-size:13px}th:first-child,td:first-child,.words th,.words td{text-align:left}
td{overflow-wrap:anywhere}summary{cursor:pointer;color:var(--muted);margin-top:30px}
@media(max-width:820px){.scene{grid-template-columns:1fr}}
"""
LIGHT = "--page:#f6f7f8;--card:#ffffff;--alert:#a65200;--alert-page:#fff6e8;--alert-line:#f1dcbb;"
DARK = "--page:#15181b;--card:#1d2125;--alert:#f5b35a;--alert-page:#2b2417;--alert-line:#4a3d22;"


def document(title: str, body: str) -> str:
    """A complete HTML document that follows the reader's light or dark preference."""
    colours = (
        f":root{{color-scheme:light dark;{LIGHT}{css_variables(dark=False)}}}"
        f"@media(prefers-color-scheme:dark){{:root{{{DARK}{css_variables(dark=True)}}}}}"
    )
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{colours}{STYLE}</style></head><body><main>\n{body}\n</main></body></html>\n"
    )
