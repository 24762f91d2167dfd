// What a page shows: the JSON that the program writes (crates/report/src/page). All sentences are made there.
import type { Column } from "../shared/table";

export type Tone = "good" | "bad" | "warning" | "plain";

export interface PageData {
    /** Of the window. */
    title: string;
    /** Program, command, time, machine. */
    meta: string[];
    /** What spoils the figures. */
    banners: string[];
    summary: Summary;
    sections: Section[];
    /** The common axis of all plots over time. */
    time: TimeAxis;
}

/** What is read in ten seconds. */
export interface Summary {
    tone: Tone;
    /** `Goal met`, `Limit found`. */
    status: string;
    headline: string;
    /** What limited, what was changed, how much better, how sure. */
    points: { label: string; text: string; note: string }[];
    /** The few figures that matter most, where no bars have them: what, and how much. */
    figures: [string, string][];
    /** Before and after. */
    bars: BarGroup[];
    /** The changes as a diff. */
    diff: string;
    /** Commands that act on it: apply, undo. */
    commands: { label: string; command: string }[];
}

export interface BarGroup {
    title: string;
    /** The end of the bars' axis; `null`: the largest of them. */
    most: number | null;
    rows: Bar[];
}

export interface Bar {
    label: string;
    value: number | null;
    interval: [number, number] | null;
    /** The value and its interval in words. */
    text: string;
    tone: "before" | "after" | "plain" | "bad";
}

export interface Section {
    id: string;
    title: string;
    blocks: Block[];
}

export type Block =
    | { kind: "text"; text: string; style: "plain" | "quiet" | "strong" | "heading" }
    | { kind: "list"; items: string[] }
    | { kind: "table"; label: string; columns: Column[]; rows: string[][] }
    | { kind: "code"; text: string; label: string; is_diff: boolean }
    | { kind: "fold"; title: string; is_open: boolean; blocks: Block[] }
    | { kind: "bars"; label: string; groups: BarGroup[] }
    | { kind: "plots"; plots: TimePlot[] }
    | { kind: "heat_map"; heat_map: HeatMap }
    | { kind: "percentiles"; id: string; title: string; percentiles: number[]; lines: PercentileLine[] }
    | { kind: "curve"; plot: CurvePlot }
    | { kind: "waterfall"; title: string; time_us: number; parts: Part[] }
    | { kind: "flame"; label: string; frames: FlameFrame[] };

/** A frame: its row from the top, and where it begins and ends, as shares of the width. */
export interface FlameFrame {
    row: number;
    from: number;
    to: number;
    name: string;
    hint: string;
}

export interface TimeAxis {
    ends_s: number;
    loads: { label: string; begins_s: number; ends_s: number; measured_s: [number, number] }[];
}

export interface TimePlot {
    id: string;
    title: string;
    note: string;
    unit: string;
    /** Whether a line goes on where a moment has no value of it. */
    is_joined: boolean;
    /** Seconds since the session began. */
    t_s: number[];
    /** `key` is what live readings are named by. */
    lines: { key: string; name: string; colour: string; values: (number | null)[] }[];
}

export interface HeatMap {
    from_s: number;
    step_s: number;
    /** Bounds of the rows, one more than there are rows. */
    edges_us: number[];
    /** Requests by column, then row. */
    counts: number[][];
}

/** The responses of a second, by latency: bounds, one more than there are counts. */
export interface Responses {
    edges_us: number[];
    counts: number[];
}

export interface PercentileLine {
    name: string;
    colour: string;
    /** In microseconds; null where too few requests lie beyond it. */
    values: (number | null)[];
}

/** A figure over a setting or a load. */
export interface CurvePlot {
    id: string;
    title: string;
    note: string;
    /** What is varied, and its unit: `bytes`, or none. */
    axis: string;
    axis_unit: string;
    unit: string;
    /** What was measured, in order. */
    points: CurvePoint[];
    /** The law with its band. */
    line: CurvePoint[];
    span: [number, number] | null;
    /** A place of the axis, and its name. */
    mark: [number, string] | null;
    /** That an objective sets to the figure. */
    bound: number | null;
}

export interface CurvePoint {
    at: number;
    value: number;
    ci95: [number, number] | null;
}

export interface Part {
    name: string;
    text: string;
    hint: string;
    tone: "plain" | "failed" | "rest";
    /** Known, sent, first byte, ended: microseconds since the page was due. */
    at_us: [number, number, number, number];
}
