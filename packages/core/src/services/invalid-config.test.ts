import { describe, expect, test } from "vitest";
import * as z from "zod";
import { problemsOf, toInvalidConfig } from "./invalid-config.ts";

const address = z.string().refine((text) => text.includes("@"), "must be an address");
const schema = z.strictObject({ from: z.union([address, z.strictObject({ address })]) });

const problem = (config: unknown): string => {
  const { error } = schema.safeParse(config);
  if (error === undefined) throw new Error("nothing is wrong");
  const [first] = problemsOf(error);
  return `${first?.path.join(".")} ${first?.problem}`;
};

describe("what is wrong with a configuration", () => {
  test("is told of the form that was meant, where a field has several", () => {
    expect(problem({ from: "ann" })).toBe("from must be an address");
    expect(problem({ from: { address: "ann" } })).toBe("from.address must be an address");
    expect(problem({ from: 7 })).toMatch(/^from is not valid: expected string, received number, or expected object/);
  });

  test("names a field that there is not, and where those that there are stand", () => {
    expect(problem({ from: "a@b", form: 1 })).toMatch(
      /^form is not a known field; 'from' may be meant; GET \/v1\/tool-services\/schemes/,
    );
  });

  test("is told all at once", () => {
    const { error } = schema.safeParse({ form: "a@b" });
    if (error === undefined) throw new Error("nothing is wrong");
    const { message, details } = toInvalidConfig(error);
    expect(message).toContain("'config.form' is not a known field");
    expect(details).toMatchObject({
      param: "config.form",
      extra: { problems: [{ param: "config.form" }, { param: "config.from", message: "is required" }] },
    });
  });
});
