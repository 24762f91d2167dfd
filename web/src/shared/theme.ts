// Colours of the style sheet for what is drawn on canvas, and when they change.

/** A colour of base.css by its name without dashes. */
export function colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
}

/** Calls back when the reader's system turns dark or light, and before and after printing, which is always light. */
export function onThemeChange(redraw: () => void): void {
    for (const query of ["(prefers-color-scheme: dark)", "print"]) {
        matchMedia(query).addEventListener("change", redraw);
    }
}
