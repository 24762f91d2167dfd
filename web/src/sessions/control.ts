// Saved workloads, where the server permits to start and stop them.
import { el } from "../shared/dom";
import { fetchJson, reportPath, type Workloads } from "./data";

/** A run that goes on is looked at so often. */
const POLL_MS = 2000;

/** Shows what may be started; nothing where nothing may. `onChange` is called when a run has begun or ended. */
export async function showControl(section: HTMLElement, base: string, onChange: () => void): Promise<void> {
    const path = `${base}api/workloads`;
    const problem = el("p", { role: "alert" });
    const state = el("p", { role: "status" });
    const send = (action: string) => async () => {
        problem.textContent = "";
        try {
            show(await fetchJson<Workloads>(`${path}/${action}`, "POST"));
            onChange();
        } catch (error) {
            problem.textContent = error instanceof Error ? error.message : String(error);
        }
    };
    const poll = async () => {
        const now = await fetchJson<Workloads>(path);
        show(now);
        if (now.run?.is_over) onChange();
    };
    const show = ({ run }: Workloads) => {
        const goesOn = run !== null && run !== undefined && !run.is_over;
        for (const button of section.querySelectorAll("button")) button.disabled = goesOn;
        stop.disabled = !goesOn;
        if (!run) return;
        const link = el("a", { href: reportPath(base, run.session) }, run.session);
        const failed = run.error ? `: ${run.error}` : "";
        const ended = `${run.workload} ended with exit code ${run.exit_code ?? "unknown"}${failed} `;
        state.replaceChildren(goesOn ? `${run.workload} runs: ` : ended, link);
        if (goesOn) setTimeout(() => void poll().catch(() => undefined), POLL_MS);
    };
    const first = await fetchJson<Workloads>(path);
    if (first.workloads.length === 0) return;
    const start = (name: string) =>
        el("li", {}, el("button", { type: "button", onclick: send(`start/${encodeURIComponent(name)}`) }, `Start ${name}`));
    const stop = el("button", { type: "button", onclick: send("stop") }, "Stop the run");
    section.append(el("h2", {}, "Saved workloads"), el("ul", { class: "workloads" }, ...first.workloads.map(start), el("li", {}, stop)), state, problem);
    show(first);
}
