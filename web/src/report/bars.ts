// Bars as elements: before and after with their intervals, limits, parts of the time, the parts of a page over time, and frames.
import { add, el, type Child } from "../shared/dom";
import { time } from "../shared/format";
import { table } from "../shared/table";
import type { Bar, BarGroup, Block } from "./data";

/** Groups of bars, each with its own scale. The words beside a bar say what it shows. */
export function bars(groups: BarGroup[], isLarge: boolean): HTMLElement {
    return el("div", { class: isLarge ? "bars large" : "bars" }, ...groups.map(group));
}

function group(of: BarGroup): HTMLElement {
    const ends = of.rows.flatMap((row) => [row.value ?? 0, row.interval?.[1] ?? 0]);
    const most = of.most ?? Math.max(...ends, 0);
    const list = el("ul", {}, ...of.rows.map((row) => bar(row, most)));
    return el("div", { class: "group" }, of.title !== "" && el("p", { class: "quiet" }, of.title), list);
}

function bar(row: Bar, most: number): HTMLElement {
    const track = el("span", { class: "track", "aria-hidden": "true" });
    const share = (value: number) => (most > 0 ? Math.max(0, Math.min(1, value / most)) : 0);
    if (row.value !== null) add(track, span(`fill ${row.tone}`, 0, share(row.value)));
    if (row.interval) add(track, span("interval", share(row.interval[0]), share(row.interval[1])));
    const [, value, interval] = /^(.*?)( \(.*\))?$/.exec(row.text) ?? [];
    const words = el("span", { class: "value" }, value, interval && el("small", {}, interval));
    return el("li", {}, el("span", { class: "label" }, row.label), track, words);
}

/** A piece of a track between two shares of its width. */
function span(name: string, from: number, to: number): HTMLElement {
    const piece = el("span", { class: name });
    piece.style.left = `${from * 100}%`;
    piece.style.width = `${Math.max(0, to - from) * 100}%`;
    return piece;
}

/** How a page went: its parts below each other over one axis. */
export function waterfall(of: Extract<Block, { kind: "waterfall" }>): HTMLElement {
    const most = Math.max(of.time_us, ...of.parts.map((part) => part.at_us[3]), 1);
    const rows = of.parts.map((part): Child[] => {
        const [known, sent, first, ended] = part.at_us.map((us) => us / most) as [number, number, number, number];
        const pieces =
            part.tone === "rest"
                ? [span("rest", known, ended)]
                : [span("waits", known, sent), span(part.tone === "failed" ? "failed" : "sent", sent, first), span(part.tone === "failed" ? "failed" : "receives", first, ended)];
        return [el("code", {}, part.name), el("span", { class: "track", title: part.hint }, ...pieces), part.text];
    });
    const columns = [
        { title: "part", align: "words" as const },
        { title: `0 to ${time(most)} since the page was due`, align: "words" as const },
        { title: "ended, size", align: "words" as const },
    ];
    const key = ["waits", "sent", "receives", "failed"].map((name, index) => {
        const words = ["known, and not sent yet", "sent, no byte yet", "receiving", "failed"][index];
        return el("li", {}, el("i", { class: `block ${name}` }), words);
    });
    const frame = table(of.title, columns, rows);
    frame.classList.add("waterfall");
    return el("figure", {}, el("figcaption", {}, el("strong", {}, of.title)), el("ul", { class: "key" }, ...key), frame);
}

/** Frames below each other, as wide as their shares. */
export function flame(of: Extract<Block, { kind: "flame" }>): HTMLElement {
    const chart = el("div", { class: "flame", role: "img", "aria-label": of.label });
    const rows = 1 + Math.max(0, ...of.frames.map((frame) => frame.row));
    chart.style.height = `${rows * 1.3}rem`;
    for (const frame of of.frames) {
        const piece = span(`frame depth-${Math.min(frame.row, 2)}`, frame.from, frame.to);
        piece.style.top = `${frame.row * 1.3}rem`;
        piece.title = frame.hint;
        add(piece, frame.name);
        add(chart, piece);
    }
    return chart;
}
