import { describe, expect, test } from "vitest";
import * as z from "zod";
import { problemOf } from "./invalid-config.ts";

const address = z.string().refine((text) => text.includes("@"), "must be an address");
const schema = z.strictObject({ from: z.union([address, z.strictObject({ address })]) });

const problem = (config: unknown): string => {
  const { error } = schema.safeParse(config);
  if (error === undefined) throw new Error("nothing is wrong");
  const { path, problem: what } = problemOf(error);
  return `${path.join(".")} ${what}`;
};

describe("what is wrong with a configuration", () => {
  test("is told of the form that was meant, where a field has several", () => {
    expect(problem({ from: "ann" })).toBe("from must be an address");
    expect(problem({ from: { address: "ann" } })).toBe("from.address must be an address");
    expect(problem({ from: 7 })).toMatch(/^from is not valid: expected string, received number, or expected object/);
  });

  test("names a field that there is not, and where those that there are stand", () => {
    expect(problem({ from: "a@b", form: 1 })).toMatch(/^form is not a field .*GET \/v1\/tool-services\/schemes/);
  });
});
