// Elements are made by name and text alone: a string of a recording has no way to become markup.

export type Child = Node | string | number | null | undefined | false;
type Attributes = Record<string, string | number | boolean | null | undefined | EventListener>;

/** An element with attributes and children; strings become text. `onclick` and the like take a listener; `false` leaves out. */
export function el<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    attributes: Attributes = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (typeof value === "function") element.addEventListener(name.replace(/^on/, ""), value);
        else if (value === true) element.setAttribute(name, "");
        else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, String(value));
    }
    add(element, ...children);
    return element;
}

/** Adds children; strings become text. */
export function add(parent: Node, ...children: Child[]): void {
    for (const child of children) {
        if (child === null || child === undefined || child === false) continue;
        parent.appendChild(child instanceof Node ? child : document.createTextNode(visible(String(child))));
    }
}

/** What could make a line read as another one (UAX #9), and controls, which show nothing, are shown as replaced. */
export function visible(text: string): string {
    return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069\ufffe\uffff]/g, "\ufffd");
}

/** A button that copies a text, and says so. */
export function copyButton(text: () => string, what: string, label = "Copy"): HTMLButtonElement {
    const button = el("button", { type: "button", class: "copy", "aria-label": `${label}: ${what}` }, label);
    button.addEventListener("click", async () => {
        const done = await copy(text());
        button.textContent = done ? "Copied" : "Not copied";
        setTimeout(() => (button.textContent = label), 1500);
    });
    return button;
}

/** The clipboard of pages that have one (secure contexts: file://, https, localhost), else the one of old browsers. */
async function copy(text: string): Promise<boolean> {
    try {
        await navigator.clipboard.writeText(text);
        return true;
    } catch {
        const field = el("textarea", { class: "hidden", "aria-hidden": "true" });
        field.value = text;
        document.body.appendChild(field);
        field.select();
        const done = document.execCommand("copy");
        field.remove();
        return done;
    }
}
