// Tables that scroll sideways in their own frame.
import { add, copyButton, el, type Child } from "./dom";

/** How a column is set; a command has a button that copies it. */
export type Align = "words" | "number" | "code" | "command";

export interface Column {
    title: string;
    align: Align;
}

/** A table in a frame that can be scrolled, also by keyboard. */
export function table(label: string, columns: Column[], rows: Child[][]): HTMLElement {
    const head = el("tr", {}, ...columns.map(header));
    const body = el("tbody");
    for (const row of rows) {
        const cells = columns.map((column, index) => cell(column.align, row[index]));
        add(body, el("tr", {}, ...cells));
    }
    const frame = { class: "scroll", role: "group", tabindex: 0, "aria-label": label };
    return el("div", frame, el("table", {}, el("thead", {}, head), body));
}

function header({ title, align }: Column): HTMLElement {
    return title === "" ? el("td") : el("th", { scope: "col", class: align }, title);
}

function cell(align: Align, child: Child): HTMLElement {
    if (align === "words" || align === "number" || typeof child !== "string" || child === "") return el("td", { class: align }, child);
    const copy = align === "command" && copyButton(() => child, child);
    return el("td", { class: "code" }, el("code", {}, child), copy && " ", copy);
}
