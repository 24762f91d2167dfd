// A plot of lines over an axis with what belongs to it: title, key with the values under the pointer, zoom and pointer shared
// with the plots of its group, keys, and a table of its figures. Drawn by uPlot.
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { add, copyButton, el } from "./dom";
import { quantity, tick } from "./format";
import { table } from "./table";
import { colour, onThemeChange } from "./theme";

export type Value = number | null;

export interface Line {
    name: string;
    /** One for each place of the axis. */
    values: Value[];
    /** A colour of base.css: `accent`, `series-2`, `bad`. */
    colour: string;
    /** Of this line; by default the plot's. */
    unit?: string;
    /** Whether it goes on where a value is missing. */
    isJoined?: boolean;
}

/** What lies along the bottom. */
export interface Axis {
    title: string;
    format: (value: number) => string;
    /** Distances between ticks that may be chosen, for units that are not decimal. */
    steps?: number[];
    /** Places of ticks, where they are not evenly spaced. */
    ticks?: number[];
    isLogarithmic?: boolean;
    /** From and to; by default what the lines need. */
    range?: () => [number, number];
}

export interface PlotSpec {
    id: string;
    title: string;
    /** A sentence on how to read it. */
    note?: string | undefined;
    /** Of the values: `us`, `req/s`, `fraction`. */
    unit: string;
    axis: Axis;
    /** Places along the axis, rising. */
    at: number[];
    lines: Line[];
    height?: number;
    isLogarithmic?: boolean;
    /** The least upper end of the values' axis. */
    upTo?: number;
    /** Range of the values' axis, where lines do not decide it. */
    valueRange?: () => [number, number];
    group?: PlotGroup;
    /** Draws below the lines, and above them. */
    below?: (plot: uPlot) => void;
    above?: (plot: uPlot) => void;
    /** What the pointer is on, where that is no value of a line. */
    describePlace?: (plot: uPlot) => string;
    /** The table behind the plot, where lines do not make it. */
    rows?: () => { columns: string[]; rows: string[][] };
}

/** More rows than this nobody reads: the table shows every n-th, the button copies all. */
const ROWS_MAX = 200;
/** Room for the labels of the values: the same for all plots, so that those below each other share their axis. */
const LABELS_PX = 66;

/** Plots that are zoomed, and pointed at, together. */
export class PlotGroup {
    private plots: Plot[] = [];
    private range: [number, number] | null = null;
    readonly sync: uPlot.SyncPubSub;

    constructor(key: string) {
        this.sync = uPlot.sync(key);
    }

    join(plot: Plot): void {
        this.plots.push(plot);
    }

    /** Shows the same range in all plots. */
    setRange(min: number, max: number): void {
        // Each plot reports its new range too.
        if (this.range?.[0] === min && this.range[1] === max) return;
        this.range = [min, max];
        for (const plot of this.plots) plot.canvas.setScale("x", { min, max });
    }

    /** By how much to zoom (below 1: closer) and to move, as a share of what is shown; without either all is shown. */
    zoom(factor?: number, move = 0): void {
        const first = this.plots[0];
        if (!first) return;
        const [start, end] = first.extent();
        if (factor === undefined) return this.setRange(start, end);
        const { min = start, max = end } = first.canvas.scales.x ?? {};
        const [low, high] = [min ?? start, max ?? end];
        const width = Math.min((high - low) * factor, end - start);
        const from = Math.max(start, Math.min((low + high - width) / 2 + move * width, end - width));
        this.setRange(from, from + width);
    }

    /** Buttons for those who have no pointer to drag with. */
    buttons(): HTMLElement {
        const button = (text: string, label: string, act: () => void) =>
            el("button", { type: "button", "aria-label": label, title: label, onclick: act }, text);
        return el(
            "div",
            { class: "zoom", role: "group", "aria-label": "Zoom of all plots" },
            button("−", "Zoom out", () => this.zoom(2)),
            button("+", "Zoom in", () => this.zoom(0.5)),
            button("‹", "Earlier", () => this.zoom(1, -0.5)),
            button("›", "Later", () => this.zoom(1, 0.5)),
            button("All", "Show all", () => this.zoom()),
        );
    }
}

export class Plot {
    readonly element: HTMLElement;
    readonly canvas: uPlot;
    private readonly frame: HTMLElement;
    private readonly place = el("span", { class: "place" });
    private readonly spoken = el("span", { class: "hidden", "aria-live": "polite" });
    private readonly figures: HTMLElement[] = [];
    private readonly group: PlotGroup;
    private shown: [number, number];

    constructor(private readonly spec: PlotSpec) {
        this.group = spec.group ?? new PlotGroup(spec.id);
        this.shown = this.extent();
        const keys = "Arrow keys move the pointer, plus and minus zoom, 0 shows all.";
        const label = `${spec.title}. ${this.description()} ${keys}`;
        this.frame = el("div", { class: "plot", id: spec.id, tabindex: 0, role: "group", "aria-label": label });
        const caption = el("figcaption", {}, el("strong", {}, spec.title), spec.note ? ` ${spec.note}` : "");
        this.element = el("figure", {}, caption, this.key(), this.frame, this.spoken, this.tableFold());
        this.canvas = new uPlot(this.options(), this.data(), this.frame);
        this.frame.addEventListener("keydown", (event) => this.onKey(event));
        this.group.join(this);
        new ResizeObserver(() => this.fit()).observe(this.frame);
        onThemeChange(() => this.canvas.redraw(false));
    }

    /** First and last place of the axis. */
    extent(): [number, number] {
        return this.spec.axis.range?.() ?? [this.spec.at[0] ?? 0, this.spec.at[this.spec.at.length - 1] ?? 1];
    }

    /** Shows what was added to the arrays that it was made of; who has zoomed in stays there. */
    refresh(): void {
        const { min, max } = this.canvas.scales.x ?? {};
        const isWhole = (min ?? 0) <= this.shown[0] && (max ?? 0) >= this.shown[1];
        this.canvas.setData(this.data(), isWhole);
        this.shown = this.extent();
        if (!isWhole) this.canvas.redraw();
    }

    private data(): uPlot.AlignedData {
        return [this.spec.at, ...this.spec.lines.map((line) => line.values)];
    }

    private options(): uPlot.Options {
        const { spec } = this;
        return {
            width: this.width(),
            height: spec.height ?? 200,
            legend: { show: false },
            padding: [8, 20, 0, 0],
            cursor: {
                drag: { x: true, y: false, dist: 6 },
                points: { size: 7 },
                sync: { key: this.group.sync.key, scales: ["x", null] },
            },
            scales: { x: this.placeScale(), y: this.valueScale() },
            axes: [this.placeAxis(), this.valueAxis()],
            series: [{}, ...spec.lines.map(series)],
            hooks: {
                drawClear: [(plot) => spec.below?.(plot)],
                draw: [(plot) => spec.above?.(plot)],
                setCursor: [() => this.showValues()],
                setScale: [(plot, key) => key === "x" && this.onRange(plot)],
            },
        };
    }

    private onRange(plot: uPlot): void {
        const { min, max } = plot.scales.x ?? {};
        if (typeof min === "number" && typeof max === "number") this.group.setRange(min, max);
    }

    private placeScale(): uPlot.Scale {
        const { axis } = this.spec;
        // After a double click all is shown, which may be more than the lines reach.
        const all = (_: uPlot, min: number | null, max: number | null): [number, number] =>
            min === null || max === null || min === this.spec.at[0] && max === this.spec.at[this.spec.at.length - 1] ? this.extent() : [min, max];
        return { time: false, distr: axis.isLogarithmic ? 3 : 1, range: all };
    }

    private valueScale(): uPlot.Scale {
        const { spec } = this;
        if (spec.valueRange) return { distr: spec.isLogarithmic ? 3 : 1, range: spec.valueRange };
        if (spec.isLogarithmic) return { distr: 3 };
        const fromZero = (_: uPlot, min: number, max: number): [number, number] =>
            [Math.min(0, min ?? 0), Math.max(spec.upTo ?? 0, (max ?? 0) * 1.08) || 1];
        return { range: fromZero };
    }

    private placeAxis(): uPlot.Axis {
        const { axis } = this.spec;
        const options: uPlot.Axis = { ...look(), size: 34, space: 70, values: (_, places) => places.map((v) => (v === null ? "" : axis.format(v))) };
        if (axis.steps) options.incrs = axis.steps;
        if (axis.ticks) options.splits = axis.ticks;
        if (axis.ticks) options.filter = (_, places) => places;
        return options;
    }

    private valueAxis(): uPlot.Axis {
        const { spec } = this;
        const values = (_: uPlot, places: (number | null)[]) => places.map((v) => (v === null ? "" : tick(v, spec.unit)));
        const axis: uPlot.Axis = { ...look(), size: LABELS_PX, space: 34, values };
        return spec.isLogarithmic ? { ...axis, splits: (_, __, min, max) => decades(min, max), filter: (_, places) => places } : axis;
    }

    private width(): number {
        return Math.max(200, this.frame.clientWidth || 600);
    }

    private fit(): void {
        if (Math.abs(this.canvas.width - this.width()) >= 1) this.canvas.setSize({ width: this.width(), height: this.canvas.height });
    }

    private key(): HTMLElement {
        const list = el("ul", { class: "key" });
        this.spec.lines.forEach((line, index) => {
            const figure = el("span", { class: "figure" });
            this.figures.push(figure);
            // The title of a plot names its only line.
            if (this.spec.lines.length === 1) return add(list, el("li", {}, el("span", { class: "hidden" }, line.name), figure));
            const swatch = el("i", { class: `swatch ${line.colour}` });
            const toggle = el("button", { type: "button", "aria-pressed": "true" }, swatch, line.name, " ", figure);
            toggle.addEventListener("click", () => {
                const shown = toggle.getAttribute("aria-pressed") === "true";
                toggle.setAttribute("aria-pressed", String(!shown));
                this.canvas.setSeries(index + 1, { show: !shown });
            });
            add(list, el("li", {}, toggle));
        });
        add(list, el("li", {}, this.place));
        return list;
    }

    private showValues(): void {
        const { idx } = this.canvas.cursor;
        const is = idx !== null && idx !== undefined && (this.canvas.cursor.left ?? -1) >= 0;
        this.spec.lines.forEach((line, index) => {
            const figure = this.figures[index];
            if (figure) figure.textContent = is ? quantity(line.values[idx], line.unit ?? this.spec.unit) : "";
        });
        const at = is ? this.spec.axis.format(this.spec.at[idx] ?? 0) : "";
        this.place.textContent = is ? (this.spec.describePlace?.(this.canvas) ?? `at ${at}`) : "";
    }

    private onKey(event: KeyboardEvent): void {
        const steps: Record<string, () => void> = {
            ArrowLeft: () => this.step(-1),
            ArrowRight: () => this.step(1),
            Home: () => this.step(-Infinity),
            End: () => this.step(Infinity),
            "+": () => this.group.zoom(0.5),
            "=": () => this.group.zoom(0.5),
            "-": () => this.group.zoom(2),
            "0": () => this.group.zoom(),
            Escape: () => this.group.zoom(),
        };
        const act = event.ctrlKey || event.altKey || event.metaKey ? undefined : steps[event.key];
        if (!act) return;
        event.preventDefault();
        act();
    }

    /** Moves the pointer by keys, and says what is there. */
    private step(by: number): void {
        const { at } = this.spec;
        const now = this.canvas.cursor.idx ?? (by > 0 ? -1 : at.length);
        const next = Math.max(0, Math.min(at.length - 1, now + by));
        const place = at[next];
        if (place === undefined) return;
        this.canvas.setCursor({ left: this.canvas.valToPos(place, "x"), top: this.canvas.bbox.height / devicePixelRatio / 2 });
        const values = this.spec.lines.map((line) => `${line.name} ${quantity(line.values[next], line.unit ?? this.spec.unit)}`);
        this.spoken.textContent = [this.place.textContent, ...values].join(", ");
    }

    /** Least, mean and most of each line, for those who do not see it. */
    private description(): string {
        const of = (line: Line): string => {
            const known = line.values.filter((value): value is number => value !== null && Number.isFinite(value));
            if (known.length === 0) return `${line.name}: no values.`;
            const told = (value: number) => quantity(value, line.unit ?? this.spec.unit);
            const [least, most, sum] = known.reduce(([a, b, c], v) => [Math.min(a, v), Math.max(b, v), c + v], [Infinity, -Infinity, 0]);
            return `${line.name}: mean ${told(sum / known.length)}, ${told(least)} to ${told(most)}.`;
        };
        return this.spec.lines.map(of).join(" ");
    }

    /** The figures as a table, made when it is opened: of what is shown, thinned; the button copies all. */
    private tableFold(): HTMLElement {
        const body = el("div");
        const fold = el("details", { class: "data" }, el("summary", {}, "Table", el("span", { class: "hidden" }, ` of ${this.spec.title}`)), body);
        fold.addEventListener("toggle", () => {
            if (fold.open) body.replaceChildren(...this.tableOf());
        });
        return fold;
    }

    private tableOf(): HTMLElement[] {
        const { columns, rows } = this.spec.rows?.() ?? this.lineRows();
        const every = Math.ceil(rows.length / ROWS_MAX);
        const shown = rows.filter((_, index) => index % every === 0);
        const csv = () => [columns, ...rows].map((row) => row.map(quoted).join(",")).join("\n");
        const note = every > 1 ? `Every ${every}th of ${rows.length} rows; zoom in for more. ` : "";
        const titles = columns.map((title) => ({ title, align: "number" as const }));
        return [
            el("p", { class: "quiet" }, note, copyButton(csv, `${this.spec.title} as CSV`, "Copy all as CSV")),
            table(`Figures of ${this.spec.title}`, titles, shown),
        ];
    }

    private lineRows(): { columns: string[]; rows: string[][] } {
        const { axis, at, lines, unit } = this.spec;
        const { min, max } = this.canvas.scales.x ?? {};
        const isShown = (place: number) => place >= (min ?? -Infinity) && place <= (max ?? Infinity);
        const isKnown = (index: number) => lines.some((line) => typeof line.values[index] === "number");
        const row = (place: number, index: number) =>
            [axis.format(place), ...lines.map((line) => quantity(line.values[index], line.unit ?? unit))];
        const rows = at.map((place, index) => (isShown(place) && isKnown(index) ? row(place, index) : null));
        const known = rows.filter((cells): cells is string[] => cells !== null);
        return { columns: [axis.title, ...lines.map((line) => line.name)], rows: known };
    }
}

function series(line: Line): uPlot.Series {
    return {
        label: line.name,
        stroke: () => colour(line.colour),
        width: 1.75,
        spanGaps: line.isJoined ?? false,
        points: { show: (_, __, first, last) => last - first < 40, size: 4 },
    };
}

/** 1, 2, 5 of each decade, or its beginning alone where there are many. */
function decades(min: number, max: number): number[] {
    const [first, last] = [Math.floor(Math.log10(min)), Math.ceil(Math.log10(max))];
    const of = last - first > 3 ? [1] : last - first > 1 ? [1, 3] : [1, 2, 5];
    const places: number[] = [];
    for (let decade = first; decade <= last; decade++) places.push(...of.map((digit) => digit * 10 ** decade));
    return places.filter((place) => place >= min && place <= max);
}

function look(): uPlot.Axis {
    return {
        stroke: () => colour("quiet"),
        font: "12px system-ui, sans-serif",
        grid: { stroke: () => colour("line"), width: 1 },
        ticks: { show: false },
    };
}

function quoted(cell: string): string {
    return /[",\n]/.test(cell) ? `"${cell.replace(/"/g, '""')}"` : cell;
}
