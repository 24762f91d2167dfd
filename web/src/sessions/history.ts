// All sessions: filtered and sorted, two ticked to be compared, and the trend of those that measure the same.
import { add, el, type Child } from "../shared/dom";
import { number, time } from "../shared/format";
import { showControl } from "./control";
import { fetchJson, reportPath, when, type Session, type SessionList } from "./data";
import { showTrend } from "./trend";

interface Column {
    title: string;
    align: "words" | "number";
    /** What it is sorted by; unknown comes last. */
    key: (session: Session) => string | number | null;
    cell: (session: Session) => Child;
}

const TONES: Record<string, string> = { done: "good", applied: "good", planned: "", unfinished: "warning", interrupted: "warning", reverted: "" };

function columns(base: string): Column[] {
    const link = (session: Session) => el("a", { href: reportPath(base, session.id) }, session.id);
    const state = (session: Session) => el("span", { class: `pill ${TONES[session.state] ?? "bad"}` }, session.state);
    const limit = (session: Session) => session.limit_title ?? session.limit ?? session.error;
    return [
        { title: "Time (UTC)", align: "words", key: (s) => s.started_at || null, cell: (s) => when(s.started_at) },
        { title: "Session", align: "words", key: (s) => s.id, cell: link },
        { title: "Command", align: "words", key: (s) => s.command || null, cell: (s) => s.command },
        { title: "State", align: "words", key: (s) => s.state, cell: state },
        { title: "Rate", align: "number", key: (s) => s.rate, cell: (s) => (s.rate === null ? "–" : `${number(s.rate)}/s`) },
        { title: "p99", align: "number", key: (s) => s.p99_us, cell: (s) => (s.p99_us === null ? "–" : time(s.p99_us)) },
        { title: "Limit", align: "words", key: limit, cell: (s) => limit(s) ?? "–" },
        { title: "Target", align: "words", key: (s) => s.target, cell: (s) => s.target ?? "–" },
    ];
}

export async function showHistory(main: HTMLElement, base: string): Promise<void> {
    const list = new List(base);
    const trend = el("section", { "aria-label": "Trend" });
    const directory = el("p", { class: "quiet" });
    const load = async () => {
        const { directory: root, sessions } = await fetchJson<SessionList>(`${base}api/sessions`);
        directory.textContent = `Recordings below ${root}`;
        list.show(sessions);
        showTrend(trend, sessions);
    };
    const refresh = el("button", { type: "button", onclick: () => void load() }, "Refresh");
    const control = el("section", { "aria-label": "Saved workloads" });
    main.append(el("h1", {}, "Sessions"), directory, control, list.tools(refresh), list.compare, list.frame, trend);
    await load();
    await showControl(control, base, () => void load());
    document.addEventListener("keydown", (event) => {
        if (event.key !== "/" || event.target instanceof HTMLInputElement) return;
        event.preventDefault();
        list.filter.focus();
    });
}

/** The table of sessions with its filter, order and ticks. */
class List {
    readonly filter = el("input", { type: "search", id: "filter", autocomplete: "off" });
    readonly frame = el("div", { class: "scroll", role: "region", tabindex: 0, "aria-label": "Sessions" });
    readonly compare = el("p", { class: "compare" });
    private readonly count = el("span", { class: "quiet", role: "status" });
    private readonly columns: Column[];
    private readonly ticked = new Set<string>();
    private sessions: Session[] = [];
    private sortedBy = 0;
    private isFalling = true;

    constructor(private readonly base: string) {
        this.columns = columns(base);
        this.filter.value = new URLSearchParams(location.search).get("filter") ?? "";
        this.filter.addEventListener("input", () => {
            const query = this.filter.value ? `?filter=${encodeURIComponent(this.filter.value)}` : location.pathname;
            history.replaceState(null, "", query);
            this.render();
        });
    }

    tools(...others: HTMLElement[]): HTMLElement {
        const label = el("label", { for: "filter" }, "Filter");
        return el("div", { class: "tools" }, label, this.filter, ...others, this.count);
    }

    show(sessions: Session[]): void {
        this.sessions = sessions;
        this.render();
    }

    /** Sessions that have all words of the filter, in order. */
    private shown(): Session[] {
        const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
        const text = (s: Session) =>
            [s.id, s.started_at, s.command, s.state, s.limit, s.limit_title, s.target, s.error].join(" ").toLowerCase();
        const { key } = this.columns[this.sortedBy] as Column;
        const sign = this.isFalling ? -1 : 1;
        const order = (a: Session, b: Session): number => {
            const [x, y] = [key(a), key(b)];
            if (x === null || y === null) return x === y ? 0 : x === null ? 1 : -1;
            return sign * (typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y)));
        };
        return this.sessions.filter((session) => words.every((word) => text(session).includes(word))).sort(order);
    }

    private render(): void {
        const shown = this.shown();
        this.count.textContent = `${number(shown.length)} of ${number(this.sessions.length)} sessions`;
        const focused = document.activeElement?.getAttribute("data-column");
        const heads = this.columns.map((column, index) => this.head(column, index));
        const body = el("tbody", {}, ...shown.map((session) => this.row(session)));
        const first = el("th", { scope: "col" }, el("span", { class: "hidden" }, "Compare"));
        this.frame.replaceChildren(el("table", {}, el("thead", {}, el("tr", {}, first, ...heads)), body));
        if (focused) this.frame.querySelector<HTMLElement>(`[data-column="${focused}"]`)?.focus();
        this.renderCompare();
    }

    private head(column: Column, index: number): HTMLElement {
        const isSorted = index === this.sortedBy;
        const order = isSorted ? (this.isFalling ? "descending" : "ascending") : null;
        const arrow = isSorted ? el("span", { "aria-hidden": "true" }, this.isFalling ? " ↓" : " ↑") : null;
        const sort = () => {
            this.isFalling = isSorted ? !this.isFalling : column.align === "number" || index === 0;
            this.sortedBy = index;
            this.render();
        };
        const button = el("button", { type: "button", class: "sort", "data-column": index, onclick: sort }, column.title, arrow);
        return el("th", { scope: "col", class: column.align, "aria-sort": order }, button);
    }

    private row(session: Session): HTMLElement {
        const tick = el("input", { type: "checkbox", "aria-label": `Compare ${session.id}` });
        tick.checked = this.ticked.has(session.id);
        tick.addEventListener("change", () => {
            if (tick.checked) this.ticked.add(session.id);
            else this.ticked.delete(session.id);
            this.renderCompare();
        });
        const cells = this.columns.map((column) => el("td", { class: column === this.columns[0] ? "time" : column.align }, column.cell(session)));
        return el("tr", {}, el("td", {}, tick), ...cells);
    }

    /** The earlier one is A. */
    private renderCompare(): void {
        const ticked = this.sessions.filter((session) => this.ticked.has(session.id)).sort((a, b) => a.started_at.localeCompare(b.started_at));
        const link = (query: Record<string, string>, text: string) =>
            el("a", { href: `${this.base}compare?${new URLSearchParams(query).toString()}` }, text);
        const [first, second] = ticked;
        const parts: Child[] = [];
        if (ticked.length === 2 && first && second) {
            const text = `Compare ${first.id} (A) with ${second.id} (B)`;
            parts.push(link({ a: first.id, b: second.id }, text));
        } else if (first && ticked.length === 1) {
            const isTuning = ["tune", "quickstart"].includes(first.command);
            if (isTuning) parts.push(link({ a: first.id }, `Compare baseline and best load of ${first.id}`), ", or tick");
            parts.push(isTuning ? " another session." : "Tick another session to compare it with.");
        } else {
            parts.push(ticked.length === 0 ? "Tick two sessions to compare them." : "Tick only two sessions to compare them.");
        }
        this.compare.replaceChildren();
        add(this.compare, ...parts);
    }
}
