// A figure over a setting or a load: points with their intervals, the law with its band, the plateau, the choice, an objective's bound.
import type uPlot from "uplot";
import { quantity, number } from "../shared/format";
import { Plot } from "../shared/plot";
import { colour } from "../shared/theme";
import type { CurvePlot, CurvePoint } from "./data";

/** Values that span more than this ratio are laid out by their logarithm. */
const LOGARITHMIC_RATIO = 20;

export function curve(of: CurvePlot): HTMLElement {
    const at = [...new Set([...of.points, ...of.line].map((point) => point.at))].sort((a, b) => a - b);
    const values = (points: CurvePoint[]) => {
        const known = new Map(points.map((point) => [point.at, point.value]));
        return at.map((place) => known.get(place) ?? null);
    };
    const told = (place: number) => (of.axis_unit === "bytes" ? quantity(place, "bytes") : number(place));
    const [first, last] = [at[0] ?? 0, at[at.length - 1] ?? 1];
    const isLogarithmic = first > 0 && last / first > LOGARITHMIC_RATIO;
    const margin = isLogarithmic ? 0 : (last - first) * 0.03;
    const range = (): [number, number] => (isLogarithmic ? [first / 1.05, last * 1.05] : [first - margin, last + margin]);
    const law = { name: "law", values: values(of.line), colour: "series-2", isJoined: true };
    const measured = { name: "measured", values: values(of.points), colour: "accent", isJoined: of.line.length === 0 };
    return new Plot({
        id: of.id,
        title: of.title,
        note: of.note,
        unit: of.unit,
        axis: { title: of.axis, format: told, isLogarithmic, range },
        at,
        lines: of.line.length > 0 ? [measured, law] : [measured],
        height: 280,
        valueRange: () => valueRange(of),
        below: (canvas) => {
            if (of.span) fill(canvas, of.span);
            band(canvas, of.line);
        },
        above: (canvas) => {
            of.points.forEach((point) => circle(canvas, point));
            marks(canvas, of, told);
        },
        rows: () => ({
            columns: [of.axis, "measured", "from", "to (95%)"],
            rows: of.points.map((point) => [told(point.at), ...[point.value, point.ci95?.[0], point.ci95?.[1]].map((value) => quantity(value, of.unit))]),
        }),
    }).element;
}

/** From 0, unless all values lie close together: then what differs would not be seen. */
function valueRange(of: CurvePlot): [number, number] {
    const all = [...of.points, ...of.line].flatMap((point) => [point.value, ...(point.ci95 ?? [])]).concat(of.bound ?? []);
    const [least, most] = [Math.min(...all), Math.max(...all)];
    return [least > 0.5 * most ? least - 0.15 * (most - least || most) : 0, most + 0.08 * (most - Math.min(least, 0) || 1)];
}

function fill(canvas: uPlot, [low, high]: [number, number]): void {
    const { ctx, bbox } = canvas;
    const inside = (place: number) => Math.max(bbox.left, Math.min(bbox.left + bbox.width, canvas.valToPos(place, "x", true)));
    ctx.fillStyle = colour("warm");
    ctx.fillRect(inside(low), bbox.top, Math.max(inside(high) - inside(low), 2), bbox.height);
}

/** The interval of the law. */
function band(canvas: uPlot, line: CurvePoint[]): void {
    const { ctx } = canvas;
    const ends = line.filter((point) => point.ci95 !== null);
    if (ends.length < 2) return;
    const to = (point: CurvePoint, end: 0 | 1) => ctx.lineTo(canvas.valToPos(point.at, "x", true), canvas.valToPos(point.ci95?.[end] ?? point.value, "y", true));
    clipped(canvas, () => {
        ctx.globalAlpha = 0.18;
        ctx.fillStyle = colour("series-2");
        ctx.beginPath();
        ends.forEach((point) => to(point, 0));
        [...ends].reverse().forEach((point) => to(point, 1));
        ctx.fill();
    });
}

function circle(canvas: uPlot, point: CurvePoint): void {
    const { ctx } = canvas;
    const scale = devicePixelRatio;
    const [x, y] = [canvas.valToPos(point.at, "x", true), canvas.valToPos(point.value, "y", true)];
    clipped(canvas, () => {
        ctx.strokeStyle = ctx.fillStyle = colour("accent");
        ctx.lineWidth = 1.5 * scale;
        ctx.beginPath();
        for (const end of point.ci95 ?? []) {
            const height = canvas.valToPos(end, "y", true);
            ctx.moveTo(x, y);
            ctx.lineTo(x, height);
            ctx.moveTo(x - 4 * scale, height);
            ctx.lineTo(x + 4 * scale, height);
        }
        ctx.stroke();
        ctx.beginPath();
        ctx.arc(x, y, 4 * scale, 0, 2 * Math.PI);
        ctx.fill();
    });
}

/** The choice as an upright line with its name, the bound as a level one. */
function marks(canvas: uPlot, of: CurvePlot, told: (place: number) => string): void {
    const { ctx, bbox } = canvas;
    const scale = devicePixelRatio;
    clipped(canvas, () => {
        ctx.setLineDash([5 * scale, 4 * scale]);
        ctx.lineWidth = 1.5 * scale;
        ctx.font = `${12 * scale}px system-ui, sans-serif`;
        if (of.bound !== null) {
            const y = canvas.valToPos(of.bound, "y", true);
            stroke(ctx, "bad", [bbox.left, y], [bbox.left + bbox.width, y]);
        }
        if (of.mark === null) return;
        const [place, name] = of.mark;
        const x = canvas.valToPos(place, "x", true);
        stroke(ctx, "good", [x, bbox.top], [x, bbox.top + bbox.height]);
        const text = `${name} ${told(place)}`;
        const isRoom = x + ctx.measureText(text).width + 8 * scale < bbox.left + bbox.width;
        ctx.textAlign = isRoom ? "left" : "right";
        ctx.fillStyle = colour("good");
        ctx.fillText(text, x + (isRoom ? 6 : -6) * scale, bbox.top + bbox.height - 8 * scale);
    });
}

function stroke(ctx: CanvasRenderingContext2D, style: string, from: [number, number], to: [number, number]): void {
    ctx.strokeStyle = colour(style);
    ctx.beginPath();
    ctx.moveTo(...from);
    ctx.lineTo(...to);
    ctx.stroke();
}

/** Draws within the area of the plot, and leaves everything else as it was. */
function clipped({ ctx, bbox }: uPlot, draw: () => void): void {
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    draw();
    ctx.restore();
}
