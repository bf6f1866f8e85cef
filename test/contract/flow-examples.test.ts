/** Flows that the documentation shows can be published as they are. */
import { readFile } from "node:fs/promises";
import type { JsonValue } from "@toolyard/core/json";
import { checkFlow } from "@toolyard/core/flows/validate";
import { describe, expect, test } from "vitest";

const page = await readFile(new URL("../../docs/flows.md", import.meta.url), "utf8");
const examples = [...page.matchAll(/```json\n([\s\S]*?)```/g)].map(([, text = ""]) => JSON.parse(text) as JsonValue);

describe("flows of the documentation", () => {
  test("are there, and without a fault", async () => {
    expect(examples.length).toBeGreaterThan(0);
    for (const example of examples) expect(await checkFlow(example)).toMatchObject({ problems: [] });
  });
});
