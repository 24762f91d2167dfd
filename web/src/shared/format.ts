// Numbers as the program writes them (crates/model/src/number/human.rs): a unit, three significant digits, groups of thousands.

export const UNKNOWN = "unknown";

/** Whole numbers exactly, others with three significant digits. */
export function number(value: number): string {
    if (!Number.isFinite(value)) return UNKNOWN;
    if (Math.abs(value) < 1e-6) return "0";
    if (Math.abs(value) >= 1e15) return value.toExponential(2);
    const whole = Math.abs(value) >= 1000 || Number.isInteger(value);
    const rounded = whole ? Math.round(value) : significant(value, 3);
    return rounded.toLocaleString("en-US", { maximumFractionDigits: 9 });
}

/** Rounded to so many significant digits. */
export function significant(value: number, digits: number): number {
    return Number.isFinite(value) ? Number(value.toPrecision(digits)) : value;
}

/** A time in microseconds: `850 µs`, `1.23 ms`, `4.5 s`, `2 min 5 s`. */
export function time(us: number): string {
    if (!Number.isFinite(us)) return UNKNOWN;
    const rounded = Math.abs(us) < 1e-6 ? 0 : significant(us, 3);
    const size = Math.abs(rounded);
    if (size < 1e3) return `${number(rounded)} µs`;
    if (size < 1e6) return `${number(rounded / 1e3)} ms`;
    if (size < 120e6) return `${number(rounded / 1e6)} s`;
    const seconds = Math.round(us / 1e6);
    if (seconds < 7200) return parts(Math.floor(seconds / 60), "min", seconds % 60, "s");
    const minutes = Math.round(seconds / 60);
    return parts(Math.floor(minutes / 60), "h", minutes % 60, "min");
}

function parts(large: number, largeUnit: string, small: number, smallUnit: string): string {
    return small === 0 ? `${large} ${largeUnit}` : `${large} ${largeUnit} ${small} ${smallUnit}`;
}

/** A time in seconds on an axis or in a table: `12.5 s`, `2:05`, `1:02:05`. */
export function clock(seconds: number, longest: number): string {
    if (longest < 120) return `${number(significant(seconds, 6))} s`;
    const whole = Math.round(seconds);
    const two = (value: number) => String(value).padStart(2, "0");
    const [h, min, s] = [Math.floor(whole / 3600), Math.floor(whole / 60) % 60, whole % 60];
    return longest < 3600 ? `${min}:${two(s)}` : `${h}:${two(min)}:${two(s)}`;
}

function bytes(value: number): string {
    const units = ["B", "kB", "MB", "GB", "TB", "PB"];
    let [size, unit] = [significant(value, 3), 0];
    while (Math.abs(size) >= 1000 && unit + 1 < units.length) [size, unit] = [size / 1000, unit + 1];
    return `${number(significant(size, 3))} ${units[unit]}`;
}

/** A value in a unit as facts and levels name it. */
export function quantity(value: number | null | undefined, unit: string): string {
    if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
    if (unit === "us") return time(value);
    if (unit === "s") return value === 0 ? "0 s" : time(value * 1e6);
    if (unit === "bytes") return bytes(value);
    if (unit === "bytes/s") return `${bytes(value)}/s`;
    if (unit === "fraction") return `${number(significant(value * 100, 3))}%`;
    if (unit === "" || unit === "count") return number(value);
    if (unit === "/s" || unit === "req/s") return `${number(value)}/s`;
    const one = value === 1 ? unit.replace(/s$/, "") : unit;
    return unit.endsWith("/s") ? `${number(value)} ${unit}` : `${number(value)} ${one}`;
}

/** The same without the words of the unit, which the title has, for ticks of an axis. */
export function tick(value: number, unit: string): string {
    if (value === 0) return "0";
    const short = ["us", "s", "bytes", "bytes/s", "fraction"].includes(unit);
    return short ? quantity(value, unit) : number(value);
}
