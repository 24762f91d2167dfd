// The plots of a report: lines over the session, the heat map of latency on the same axis, percentiles.
import type uPlot from "uplot";
import { clock, number, time } from "../shared/format";
import { Plot, PlotGroup, type Axis } from "../shared/plot";
import { colour } from "../shared/theme";
import type { Block, HeatMap, Responses, TimeAxis, TimePlot } from "./data";

/** Rounds of minutes and hours, as clocks have them. */
const SECONDS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400];
/** Where the slowest requests are much slower than the median, only a logarithmic axis shows both. */
const LOGARITHMIC_RATIO = 20;

/** All plots over time of a page: one axis, one pointer, one zoom. */
export class TimePlots {
    readonly group: PlotGroup;
    private readonly plots = new Map<string, { plot: Plot; of: TimePlot }>();
    private heat: { plot: Plot; of: HeatMap; at: number[]; known_s: number } | null = null;

    constructor(private readonly time: TimeAxis) {
        this.group = new PlotGroup("time");
    }

    lines(of: TimePlot): HTMLElement {
        const plot = new Plot({
            id: of.id,
            title: of.title,
            note: of.note,
            unit: of.unit,
            axis: this.axis(),
            at: of.t_s,
            lines: of.lines.map((line) => ({ ...line, isJoined: of.is_joined })),
            isLogarithmic: of.unit === "us" && isSpread(of),
            upTo: of.unit === "fraction" ? 1 : 0,
            height: of.id === "rate" ? 240 : of.is_joined ? 130 : 170,
            group: this.group,
            below: (canvas) => this.shade(canvas),
            above: (canvas) => this.mark(canvas, !of.is_joined),
        });
        this.plots.set(of.id, { plot, of });
        return plot.element;
    }

    heatMap(of: HeatMap): HTMLElement {
        const at = of.counts.map((_, column) => middle(of, column));
        const plot = new Plot({
            id: "latency-heat-map",
            title: "Latency of all requests",
            note: "Each column is a moment, each row a latency; the darker, the more requests.",
            unit: "us",
            axis: this.axis(),
            at,
            lines: [],
            height: 260,
            isLogarithmic: true,
            valueRange: () => [of.edges_us[0] ?? 1, of.edges_us[of.edges_us.length - 1] ?? 10],
            group: this.group,
            above: (canvas) => {
                paint(canvas, of);
                this.mark(canvas, true);
            },
            describePlace: (canvas) => place(canvas, of),
            rows: () => heatRows(of, this.time.ends_s),
        });
        this.heat = { plot, of, at, known_s: this.time.ends_s };
        return plot.element;
    }

    /** Adds what a second of a live session brought; false where a plot of it is not there yet. */
    append(second: Record<string, number | null>, atS: number): boolean {
        this.time.ends_s = Math.max(this.time.ends_s, atS);
        let isKnown = false;
        for (const { plot, of } of this.plots.values()) {
            if (!of.lines.some((line) => line.key in second)) continue;
            isKnown = true;
            if (atS <= (of.t_s[of.t_s.length - 1] ?? -1)) continue;
            of.t_s.push(atS);
            for (const line of of.lines) line.values.push(second[line.key] ?? null);
            plot.refresh();
        }
        return isKnown;
    }

    /** Adds the responses of a second to the heat map, if it is there. */
    appendResponses(of: Responses, atS: number): void {
        // The first seconds that come are those that the page may have missed: the map has most of them.
        if (!this.heat || atS <= this.heat.known_s) return;
        const { plot, of: map, at } = this.heat;
        this.heat.known_s = atS;
        addResponses(map, of, atS);
        while (at.length < map.counts.length) at.push(middle(map, at.length));
        plot.refresh();
    }

    private axis(): Axis {
        return {
            title: "time",
            format: (seconds) => clock(seconds, this.time.ends_s),
            steps: SECONDS,
            range: () => [0, Math.max(this.time.ends_s, 1)],
        };
    }

    /** Tinted: a load runs; grey: what does not count of it. */
    private shade(canvas: uPlot): void {
        for (const load of this.time.loads) {
            const [from, to] = load.measured_s;
            fill(canvas, load.begins_s, load.ends_s, colour("shade"));
            fill(canvas, load.begins_s, from, colour("warm"));
            fill(canvas, to, load.ends_s, colour("warm"));
        }
    }

    /** Where loads begin, and their names as far as there is room. */
    private mark(canvas: uPlot, hasNames: boolean): void {
        const { ctx, bbox } = canvas;
        const scale = devicePixelRatio;
        ctx.save();
        ctx.font = `${11 * scale}px system-ui, sans-serif`;
        ctx.textAlign = "left";
        ctx.textBaseline = "alphabetic";
        ctx.fillStyle = colour("text");
        let free = -Infinity;
        for (const load of this.time.loads) {
            const x = canvas.valToPos(load.begins_s, "x", true);
            if (x < bbox.left - 1 || x > bbox.left + bbox.width) continue;
            ctx.strokeStyle = colour("quiet");
            ctx.lineWidth = scale;
            ctx.setLineDash([3 * scale, 3 * scale]);
            ctx.beginPath();
            ctx.moveTo(x, bbox.top);
            ctx.lineTo(x, bbox.top + bbox.height);
            ctx.stroke();
            const width = ctx.measureText(load.label).width;
            if (!hasNames || x < free || x + width + 4 * scale > bbox.left + bbox.width) continue;
            // Readable on whatever is below.
            ctx.strokeStyle = colour("page");
            ctx.lineWidth = 3 * scale;
            ctx.setLineDash([]);
            ctx.strokeText(load.label, x + 4 * scale, bbox.top + 11 * scale);
            ctx.fillText(load.label, x + 4 * scale, bbox.top + 11 * scale);
            free = x + width + 12 * scale;
        }
        ctx.restore();
    }
}

function isSpread(of: TimePlot): boolean {
    const known = of.lines.flatMap((line) => line.values).filter((value): value is number => value !== null && value > 0);
    const [least, most] = known.reduce(([a, b], v) => [Math.min(a, v), Math.max(b, v)], [Infinity, 0]);
    return most / least > LOGARITHMIC_RATIO;
}

/** Fills a stretch of the axis over the whole height. */
function fill(canvas: uPlot, fromS: number, toS: number, style: string): void {
    const { ctx, bbox } = canvas;
    const inside = (value: number) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, canvas.valToPos(value, "x", true)));
    const [left, right] = [inside(fromS), inside(toS)];
    if (right <= left) return;
    ctx.fillStyle = style;
    ctx.fillRect(left, bbox.top, right - left, bbox.height);
}

/** Where a column lies. */
function middle(of: HeatMap, column: number): number {
    return of.from_s + (column + 0.5) * of.step_s;
}

/** Counts responses in the column of their second; the map grows for what lies beyond its bounds. */
function addResponses(map: HeatMap, of: Responses, atS: number): void {
    const column = Math.max(0, Math.floor((atS - map.from_s) / map.step_s));
    const rows = () => map.edges_us.length - 1;
    while (map.counts.length <= column) map.counts.push(new Array<number>(rows()).fill(0));
    of.counts.forEach((count, index) => {
        const us = of.edges_us[index] ?? 0;
        if (count === 0) return;
        while (us >= (map.edges_us[rows()] ?? Infinity)) {
            const [below = 1, last = 10] = map.edges_us.slice(-2);
            map.edges_us.push(Math.max(last + 1, Math.round((last * last) / below)));
            for (const counts of map.counts) counts.push(0);
        }
        const row = Math.max(0, map.edges_us.findIndex((edge) => edge > us) - 1);
        const counts = map.counts[column];
        if (counts) counts[row] = (counts[row] ?? 0) + count;
    });
}

function paint(canvas: uPlot, of: HeatMap): void {
    const { ctx, bbox } = canvas;
    const largest = Math.max(...of.counts.flat(), 1);
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    ctx.fillStyle = colour("accent");
    const rows = of.edges_us.map((edge) => Math.round(canvas.valToPos(edge, "y", true)));
    of.counts.forEach((counts, column) => {
        const left = Math.round(canvas.valToPos(of.from_s + column * of.step_s, "x", true));
        const right = Math.round(canvas.valToPos(of.from_s + (column + 1) * of.step_s, "x", true));
        if (right < bbox.left || left > bbox.left + bbox.width) return;
        counts.forEach((count, row) => {
            const [bottom, top] = [rows[row] ?? 0, rows[row + 1] ?? 0];
            ctx.globalAlpha = 0.1 + (0.9 * Math.log1p(count)) / Math.log1p(largest);
            if (count > 0) ctx.fillRect(left, top, right - left || 1, bottom - top || 1);
        });
    });
    ctx.restore();
}

/** What lies under the pointer. */
function place(canvas: uPlot, of: HeatMap): string {
    const { left = -1, top = -1 } = canvas.cursor;
    const [seconds, us] = [canvas.posToVal(left, "x"), canvas.posToVal(top, "y")];
    const column = Math.floor((seconds - of.from_s) / of.step_s);
    const row = of.edges_us.findIndex((edge, index) => us >= edge && us < (of.edges_us[index + 1] ?? 0));
    const counts = of.counts[column];
    if (!counts || row < 0) return "";
    const total = counts.reduce((sum, count) => sum + count, 0);
    const at = clock(of.from_s + column * of.step_s, of.from_s + of.counts.length * of.step_s);
    return `at ${at}: ${number(counts[row] ?? 0)} of ${number(total)} requests took ${between(of, row)}`;
}

function between(of: HeatMap, row: number): string {
    return `${time(of.edges_us[row] ?? 0)} to ${time(of.edges_us[row + 1] ?? 0)}`;
}

function heatRows(of: HeatMap, endsS: number): { columns: string[]; rows: string[][] } {
    const rows = of.counts.map((counts, column): string[] => {
        const total = counts.reduce((sum, count) => sum + count, 0);
        const known = counts.flatMap((count, row) => (count > 0 ? [row] : []));
        let seen = 0;
        const median = counts.findIndex((count) => (seen += count) * 2 >= total);
        const told = (row: number | undefined) => (total > 0 && row !== undefined ? between(of, row) : "");
        return [clock(of.from_s + column * of.step_s, endsS), number(total), told(known[0]), told(median), told(known[known.length - 1])];
    });
    return { columns: ["from", "requests", "fastest", "half at most", "slowest"], rows: rows.filter((row) => row[1] !== "0") };
}

/** Latency by percentile: to the right the slowest, each decade of the axis one nine more. */
export function percentiles(of: Extract<Block, { kind: "percentiles" }>): HTMLElement {
    const name = (share: number) => `p${Number((share * 100).toFixed(4))}`;
    const at = of.percentiles.map((share) => 1 / (1 - share));
    const shares = [0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999];
    const plot = new Plot({
        id: of.id,
        title: of.title,
        note: "Each decade to the right is one nine more. Lower is faster; a flat line is steady.",
        unit: "us",
        axis: {
            title: "percentile",
            format: (place) => name(1 - 1 / place),
            ticks: shares.map((share) => 1 / (1 - share)).filter((place) => place <= (at[at.length - 1] ?? 1) * 1.001),
            isLogarithmic: true,
        },
        at,
        lines: of.lines,
        height: 260,
        isLogarithmic: true,
        describePlace: (canvas) => {
            const place = at[canvas.cursor.idx ?? 0] ?? 1;
            return `${name(1 - 1 / place)}: ${number(Math.round(place))} requests, one of them slower`;
        },
    });
    return plot.element;
}

