import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { BuildRecord } from "./record.ts";

let directory: string;
let input: string;
let output: string;

beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), "toolyard-build-"));
  [input, output] = [join(directory, "source.ts"), join(directory, "bundle.mjs")];
  await writeFile(input, "export const answer = 1;");
  await writeFile(output, "const answer=1;");
  await new BuildRecord(directory, { minify: true }).write([input], [output]);
});
afterEach(() => rm(directory, { recursive: true, force: true }));

const known = (options: object = { minify: true }): Promise<readonly string[] | undefined> =>
  new BuildRecord(directory, options).outputs();

test("a bundle is known as long as nothing of it has changed", async () => {
  expect(await known()).toEqual([output]);
  expect(await known()).toEqual([output]);
});

test.each([
  ["a source has changed", () => writeFile(input, "export const answer = 42;")],
  ["a source is gone", () => rm(input)],
  ["one of its files is gone", () => rm(output)],
  ["the record is gone", () => rm(join(directory, "build.json"))],
  ["the record cannot be read", () => writeFile(join(directory, "build.json"), "{")],
  ["the record is of another form", () => writeFile(join(directory, "build.json"), '{"inputs":[]}')],
])("it is made anew where %s", async (_why, change) => {
  await change();
  expect(await known()).toBeUndefined();
});

test("it is made anew where another one is asked for", async () => {
  expect(await known({ minify: false })).toBeUndefined();
});
