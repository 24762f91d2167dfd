// Lays a session out: the answer, contents, sections of blocks. What is said was made by the program.
import { add, copyButton, el, type Child } from "../shared/dom";
import { table } from "../shared/table";
import { bars, flame, waterfall } from "./bars";
import { curve } from "./curve";
import type { Block, PageData, Section, Summary } from "./data";
import { percentiles, TimePlots } from "./plots";

/** A page that is shown: its plots over time, to which live readings are added, and what is still to be drawn. */
export class Shown {
    readonly plots: TimePlots;
    private readonly waiting: (() => void)[] = [];

    constructor(data: PageData) {
        this.plots = new TimePlots(data.time);
    }

    /** A place for what takes time to draw: the verdict does not wait for it. */
    later(make: () => Node): HTMLElement {
        const place = el("div");
        this.waiting.push(() => place.replaceWith(make()));
        return place;
    }

    /** Draws what waits. */
    draw(): void {
        for (const draw of this.waiting.splice(0)) draw();
    }

    /** Draws what waits, a plot a frame, from the top. */
    async drawByFrame(): Promise<void> {
        while (this.waiting.length > 0) {
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            this.waiting.shift()?.();
        }
    }
}

/** Shows a session in place of what is there. */
export function show(main: HTMLElement, data: PageData): Shown {
    const page = new Shown(data);
    document.title = data.title;
    main.replaceChildren(
        summary(data),
        contents(data.sections),
        el("div", { class: "sections" }, ...data.sections.map((of) => section(of, page)), footer()),
    );
    addEventListener("beforeprint", () => page.draw());
    return page;
}

function summary(data: PageData): HTMLElement {
    const of: Summary = data.summary;
    const point = ({ label, text, note }: Summary["points"][number]) =>
        el("div", {}, el("dt", {}, label), el("dd", {}, text, note && el("span", { class: "quiet" }, note)));
    const command = ({ label, command }: Summary["commands"][number]) =>
        el("p", { class: "command" }, el("span", { class: "quiet" }, label), " ", el("code", {}, command), " ", copyButton(() => command, command));
    const figure = ([what, text]: [string, string]) => el("div", {}, el("dt", {}, what), el("dd", {}, text));
    return el(
        "header",
        {},
        el("p", { class: "quiet meta" }, data.meta.join(" · ")),
        ...data.banners.map((text) => el("p", { class: "banner" }, text)),
        el("p", {}, el("span", { class: `pill ${of.tone}` }, of.status)),
        el("h1", {}, of.headline),
        of.figures.length > 0 && el("dl", { class: "figures" }, ...of.figures.map(figure)),
        of.bars.length > 0 && bars(of.bars, true),
        of.points.length > 0 && el("dl", { class: "points" }, ...of.points.map(point)),
        of.diff !== "" && code(of.diff, "Changes as a diff", true),
        ...of.commands.map(command),
    );
}

function contents(sections: Section[]): HTMLElement {
    const items = sections.map((of) => el("li", {}, el("a", { href: `#${of.id}` }, of.title)));
    return el("nav", { "aria-label": "Contents" }, el("ul", {}, ...items));
}

function section(of: Section, page: Shown): HTMLElement {
    const title = el("h2", { id: `${of.id}-title` }, of.title);
    const element = el("section", { id: of.id, "aria-labelledby": `${of.id}-title` }, title);
    add(element, ...of.blocks.map((block) => shown(block, page)));
    return element;
}

function footer(): HTMLElement {
    const text = "Every figure comes from the recording; webdyno report DIRECTORY makes this page again from it.";
    return el("footer", {}, el("p", { class: "quiet" }, text));
}

function shown(block: Block, page: Shown): Child {
    switch (block.kind) {
        case "text":
            return text(block);
        case "list":
            return el("ul", {}, ...block.items.map((item) => el("li", {}, item)));
        case "table":
            return table(block.label, block.columns, block.rows);
        case "code":
            return code(block.text, block.label, block.is_diff);
        case "fold":
            return fold(block, page);
        case "bars":
            return el("div", { role: "group", "aria-label": block.label }, bars(block.groups, false));
        case "plots": {
            const drawn = block.plots.map((plot) => page.later(() => page.plots.lines(plot)));
            return el("div", {}, page.plots.group.buttons(), el("div", { class: "plots" }, ...drawn));
        }
        case "heat_map":
            return page.later(() => page.plots.heatMap(block.heat_map));
        case "percentiles":
            return page.later(() => percentiles(block));
        case "curve":
            return page.later(() => curve(block.plot));
        case "waterfall":
            return waterfall(block);
        case "flame":
            return flame(block);
    }
}

function text({ text, style }: Extract<Block, { kind: "text" }>): HTMLElement {
    if (style === "heading") return el("h3", {}, text);
    return el("p", style === "quiet" ? { class: "quiet" } : {}, style === "strong" ? el("strong", {}, text) : text);
}

/** What is folded is made when it is first opened: hundreds of tables would delay the answer. */
function fold(block: Extract<Block, { kind: "fold" }>, page: Shown): HTMLElement {
    const body = el("div");
    const element = el("details", { open: block.is_open }, el("summary", {}, block.title), body);
    const make = () => {
        if (!body.firstChild) add(body, ...block.blocks.map((inner) => shown(inner, page)));
    };
    if (block.is_open) make();
    element.addEventListener("toggle", make);
    folds.set(element, make);
    return element;
}

/** What makes the contents of a fold. */
const folds = new WeakMap<Element, () => void>();

/** What is folded is printed too, apart from the figures of plots. */
addEventListener("beforeprint", () => {
    for (const fold of document.querySelectorAll("details")) {
        folds.get(fold)?.();
        fold.open ||= folds.has(fold);
    }
});

/** Text to copy; of a diff, what is added and what goes stands out. */
function code(text: string, label: string, isDiff: boolean): HTMLElement {
    const pre = el("pre", { tabindex: 0, "aria-label": label });
    const kind = (line: string) => (/^(@@|\+\+\+ |--- )/.test(line) ? "hunk" : { "+": "added", "-": "removed" }[line[0] ?? ""]);
    for (const line of text.replace(/\n$/, "").split("\n")) {
        add(pre, el("span", { class: isDiff && kind(line) }, `${line}\n`));
    }
    return el("div", { class: "code-block" }, copyButton(() => text, label), pre);
}
