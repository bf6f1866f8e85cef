/** The one table of a benchmark, and whether every floor was reached. */
export interface Finding {
  readonly what: string;
  /** What was measured, in words. */
  readonly figures: string;
  readonly value: number;
  /** Without a value it is only told. */
  readonly floor: { readonly at: "least" | "most"; readonly value?: number; readonly unit: string };
}

export function printTable(findings: readonly Finding[]): void {
  const rows = findings.map((finding) => {
    const { what, figures, value, floor } = finding;
    const sign = floor.at === "least" ? "≥" : "≤";
    const result = `${round(value)} ${floor.unit}`;
    if (floor.value === undefined) return [what, figures, result, "", "told"];
    const passed = isReached(finding) ? "pass" : "FAIL";
    return [what, figures, result, `${sign} ${round(floor.value)} ${floor.unit}`, passed];
  });
  const table = [["measured", "figures", "result", "floor", ""], ...rows];
  const widths = [0, 1, 2, 3, 4].map((column) => Math.max(...table.map((row) => (row[column] ?? "").length)));
  const lines = table.map((row) => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(" | ")} |`);
  const rule = `|${widths.map((width) => "-".repeat(width + 2)).join("|")}|`;
  console.log([lines[0], rule, ...lines.slice(1)].join("\n"));
}

export function isReached({ value, floor }: Finding): boolean {
  if (floor.value === undefined) return true;
  return floor.at === "least" ? value >= floor.value : value <= floor.value;
}

export function round(value: number): string {
  if (!Number.isFinite(value)) return "–";
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
}
