// How rate and p99 went over all sessions of the same command and target.
import { el } from "../shared/dom";
import { quantity } from "../shared/format";
import { Plot, PlotGroup, type Axis } from "../shared/plot";
import { when, type Session } from "./data";

/** Distances of ticks that are whole minutes, hours and days. */
const STEPS_S = [60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, 86400, 7 * 86400, 30 * 86400, 365 * 86400];

/** Shows the groups of two and more, the largest first. */
export function showTrend(section: HTMLElement, sessions: Session[]): void {
    const groups = grouped(sessions);
    if (groups.length === 0) return section.replaceChildren();
    const plots = el("div");
    const select = el("select", { id: "trend" }, ...groups.map(([name, of]) => el("option", {}, `${name} (${of.length})`)));
    const show = () => {
        const chosen = groups[select.selectedIndex];
        plots.replaceChildren(...(chosen ? trend(chosen[1]) : []));
    };
    select.addEventListener("change", show);
    const tools = el("div", { class: "tools" }, el("label", { for: "trend" }, "Sessions of"), select);
    section.replaceChildren(el("h2", {}, "Trend"), tools, plots);
    show();
}

function grouped(sessions: Session[]): [string, Session[]][] {
    const groups = new Map<string, Session[]>();
    for (const session of sessions) {
        if (session.rate === null || session.target === null || Number.isNaN(Date.parse(session.started_at))) continue;
        const name = `${session.command} ${session.target}`;
        groups.set(name, [...(groups.get(name) ?? []), session]);
    }
    return [...groups].filter(([, of]) => of.length > 1).sort(([, a], [, b]) => b.length - a.length);
}

function trend(sessions: Session[]): HTMLElement[] {
    const ordered = [...sessions].sort((a, b) => a.started_at.localeCompare(b.started_at));
    const at = ordered.map((session) => Date.parse(session.started_at) / 1000);
    const range = (): [number, number] => {
        const [first, last] = [at[0] ?? 0, at[at.length - 1] ?? 1];
        const margin = Math.max((last - first) * 0.02, 1);
        return [first - margin, last + margin];
    };
    const format = (seconds: number) => when(new Date(seconds * 1000).toISOString()).slice(5);
    const axis: Axis = { title: "time (UTC)", format, steps: STEPS_S, range };
    const group = new PlotGroup("trend");
    const plot = (id: string, title: string, unit: string, values: (number | null)[]) => {
        const rows = () => ({
            columns: ["time (UTC)", "session", title],
            rows: ordered.map((session, index) => [when(session.started_at), session.id, quantity(values[index], unit)]),
        });
        const lines = [{ name: title, values, colour: "accent" }];
        return new Plot({ id, title, unit, axis, at, lines, height: 180, group, rows }).element;
    };
    return [
        plot("trend-rate", "Successful requests", "req/s", ordered.map((session) => session.rate)),
        plot("trend-p99", "p99 response time", "us", ordered.map((session) => session.p99_us)),
    ];
}
