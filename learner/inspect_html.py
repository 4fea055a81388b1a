"""`page`: an inspected batch as one HTML page that needs nothing else: no script, no font, no request.

The page forbids itself to load or run anything, and every text in it is escaped: it shows what users and tools wrote.
"""

from html import escape

from learner.inspect import Inspection, RowView
from learner.inspect_text import (
    about_batch,
    about_row,
    about_steps,
    about_token,
    about_trajectory,
    runs,
    strength,
    visible,
)

_STYLE = """\
body{font:14px/1.5 system-ui,sans-serif;margin:2rem;max-width:72rem;color:#1c1c1c;background:#fff}
pre{font:13px/1.7 ui-monospace,monospace;white-space:pre-wrap;overflow-wrap:anywhere;
border:1px solid #ddd;padding:.8rem}
h2{font-size:1rem;margin:2rem 0 .2rem;border-top:1px solid #bbb;padding-top:1rem}
h3{font-size:.9rem;margin:.8rem 0 .2rem}
p,ul{margin:.2rem 0}.x{color:#888}.m{color:#888;text-decoration:underline dotted}
.c{color:#067;font-style:italic;text-decoration:line-through}
.g{background:rgba(0,160,60,var(--s))}.b{background:rgba(210,30,40,var(--s))}.z{font-weight:bold}"""
_CLASSES = {"context": "x", "masked": "m", "cut": "c"}


def page(inspection: Inspection) -> str:
    """The whole page."""
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
        '<meta name="referrer" content="no-referrer">',
        f"<title>{_text(inspection.file)}</title><style>{_STYLE}</style></head><body>",
        f"<h1>{_text(inspection.file)}</h1>",
        *(f"<p>{_text(line)}</p>" for line in about_batch(inspection)),
        f"<p>Colour: advantage, <span class=b style=--s:1>{-inspection.largest:+.3f}</span> to "
        f"<span class=g style=--s:1>{inspection.largest:+.3f}</span>. <span class=x>Context</span>, "
        "<span class=m>sampled and not trained on</span>, <span class=c>experience, cut out</span>. "
        "A trained token shows its figures when pointed at.</p>",
    ]
    for view in inspection.trajectories:
        parts.append(f"<h2>{_text(view.id)}</h2>")
        parts += [f"<p>{_text(line)}</p>" for line in about_trajectory(view)]
        parts.append(f"<ul>{''.join(f'<li>{_text(line)}' for line in about_steps(view))}</ul>")
        for number, row in enumerate(view.rows):
            parts.append(f"<h3>{_text(about_row(number, row))}</h3><pre>{_tokens(row, inspection.largest)}</pre>")
    parts.append("</body></html>\n")
    return "\n".join(parts)


def _tokens(row: RowView, largest: float) -> str:
    parts: list[str] = []
    for run in runs(row):
        text = _text("".join(token.text for token in run.tokens))
        if run.kind != "trained":
            parts.append(f"<span class={_CLASSES[run.kind]}>{text}</span>")
            continue
        token = run.tokens[0]
        look = "z" if token.advantage == 0 else "g" if token.advantage > 0 else "b"
        share = f" style=--s:{strength(token.advantage, largest):.2f}" if token.advantage else ""
        shown = text.replace("\n", "↵\n")
        parts.append(f'<span class={look}{share} title="{_text(about_token(token))}">{shown}</span>')
    return "".join(parts)


def _text(text: str) -> str:
    return escape(visible(text), quote=True)
