// Two sessions side by side: what it comes to in a sentence, what else differs, then each figure with its interval.
import { el } from "../shared/dom";
import { fetchJson, reportPath, type Comparison, type Metric } from "./data";

const TONES: Record<string, string> = { better: "good", worse: "bad", inconclusive: "warning" };

export async function showComparison(main: HTMLElement, base: string): Promise<void> {
    document.title = "Comparison · webdyno";
    const query = new URLSearchParams(location.search);
    const [a, b] = [query.get("a") ?? "", query.get("b")];
    main.append(el("nav", {}, el("a", { href: base }, "All sessions")), el("h1", {}, "Comparison"));
    const waiting = el("p", { class: "quiet", role: "status" }, "Reading both recordings ...");
    main.append(waiting);
    const compared = await fetchJson<Comparison>(`${base}api/compare?${query.toString()}`).finally(() => waiting.remove());
    const { report } = compared;
    const swapped = b === null ? null : `${base}compare?${new URLSearchParams({ a: b, b: a }).toString()}`;
    const named = (label: string, id: string, note: string) =>
        el("p", {}, el("strong", {}, label), " ", el("a", { href: reportPath(base, id) }, id), note);
    main.append(
        el("p", { class: "headline" }, compared.headline),
        named("A", a, b === null ? `, load ${report.a_load}: the baseline` : ""),
        named("B", b ?? a, b === null ? `, load ${report.b_load}: the best` : ""),
        ...(swapped === null ? [] : [el("p", {}, el("a", { href: swapped }, "Swap A and B"))]),
        ...differences(compared.differences),
        figures(compared),
        el("p", { class: "quiet" }, compared.verdicts_mean),
    );
}

function differences(found: string[]): HTMLElement[] {
    if (found.length === 0) return [];
    const list = el("ul", {}, ...found.map((text) => el("li", {}, text)));
    return [el("div", { class: "banner" }, el("p", {}, el("strong", {}, "More than the server differs")), list)];
}

function figures({ columns, rows, report }: Comparison): HTMLElement {
    const titles = columns.map((title, index) => {
        const text = index === 0 ? el("span", { class: "hidden" }, "Figure") : title;
        return el("th", { scope: "col", class: index > 0 && index < 5 ? "number" : "words" }, text);
    });
    const picture = el("th", { scope: "col", class: "words" }, "B/A with interval");
    const bound = scale(report.metrics);
    const body = rows.map((cells, index) => {
        const metric = report.metrics[index];
        const verdict = el("td", { class: "words" }, el("span", { class: `pill ${TONES[cells[5] ?? ""] ?? ""}` }, cells[5]));
        const values = cells.slice(1, 5).map((cell) => el("td", { class: "number" }, cell));
        return el("tr", {}, el("th", { scope: "row" }, cells[0]), ...values, verdict, el("td", {}, metric && interval(metric, bound)));
    });
    const table = el("table", {}, el("thead", {}, el("tr", {}, ...titles, picture)), el("tbody", {}, ...body));
    return el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Figures of both" }, table);
}

/** Up to which factor, both ways, the pictures reach. */
function scale(metrics: Metric[]): number {
    const ends = metrics.flatMap(({ ratio, ci95 }) => [...(ci95 ?? []), ratio ?? 1]).filter((ratio) => ratio > 0);
    const largest = Math.max(1.2, ...ends.map((ratio) => Math.max(ratio, 1 / ratio)));
    return Math.min(largest * 1.05, 20);
}

/** The interval on a logarithmic scale whose middle is 1: the columns beside it have the numbers. */
function interval({ ratio, ci95, verdict }: Metric, bound: number): HTMLElement | null {
    if (ratio === null || ratio <= 0) return null;
    const place = (value: number) => 50 + 50 * Math.max(-1, Math.min(1, Math.log(Math.max(value, 1e-9)) / Math.log(bound)));
    const line = el("i", { class: "line" });
    const [low, high] = (ci95 ?? [ratio, ratio]).map(place) as [number, number];
    line.style.left = `${low}%`;
    line.style.width = `${Math.max(high - low, 0.5)}%`;
    const dot = el("i", { class: "dot" });
    dot.style.left = `${place(ratio)}%`;
    return el("span", { class: `interval ${TONES[verdict] ?? ""}`, "aria-hidden": "true" }, line, dot);
}
