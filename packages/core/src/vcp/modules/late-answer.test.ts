import { describe, expect, test } from "vitest";
import { verifies } from "../../../../../test/support/verifies.ts";
import { Redactor } from "../../secrets/redactor.ts";
import { readLateModuleAnswer } from "./late-answer.ts";

const deps = { sealer: { open: () => Promise.reject(new Error("nothing is stored")) } };

describe(`a late answer of a module ${verifies("VCP-7")}`, () => {
  test("of a plugin that is gone is withheld, since nobody knows its secrets any more", async () => {
    const config = { plugins: [], credentials: [] } as never;
    const context = { tenant: "ten_a", config, redactor: new Redactor() };
    const text = JSON.stringify({ result: "my key is sk-4711" });
    const reading = readLateModuleAnswer(deps, context, { text, name: "Gone" });
    await expect(reading).rejects.toMatchObject({ code: "tool_failed", message: expect.not.stringContaining("4711") });
  });
});
