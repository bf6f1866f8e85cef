/**
 * What a bundle was made of, kept beside it: as long as all of that is as it was, the bundle is, too, and making it
 * again would take half of a second start.
 */
import { readFile, stat, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { version } from "esbuild";
import * as z from "zod";

const root = resolve(import.meta.dirname, "../..");

/** These decide which files an import means. */
const resolution = ["package-lock.json", "package.json", "tsconfig.json"].map((name) => join(root, name));

const recordSchema = z.object({
  /** Of the bundler, and how it was asked. */
  settings: z.string(),
  /** Size and time of the last change, by absolute path. */
  inputs: z.record(z.string(), z.string()),
  /** Absolute paths. */
  outputs: z.array(z.string()),
});

export class BuildRecord {
  /** Where it is kept. */
  readonly file: string;
  readonly #settings: string;

  /** @param directory that holds the bundle @param options what the bundler is asked for */
  constructor(directory: string, options: object) {
    this.file = resolve(directory, "build.json");
    this.#settings = JSON.stringify([version, options]);
  }

  /** The files of the bundle where it is still what a build would make. */
  async outputs(): Promise<readonly string[] | undefined> {
    const text = await readFile(this.file, "utf8").catch(() => "null");
    const { data: known } = recordSchema.safeParse(parsed(text));
    if (known === undefined || known.settings !== this.#settings) return undefined;
    const { inputs, outputs } = known;
    const now = await stampsOf(Object.keys(inputs));
    if (JSON.stringify(now) !== JSON.stringify(inputs)) return undefined;
    const made = await stampsOf(outputs);
    return Object.values(made).includes(absent) ? undefined : outputs;
  }

  /** @param inputs of the bundler, relative to the directory in which it works */
  async write(inputs: readonly string[], outputs: readonly string[]): Promise<void> {
    const files = [...inputs.map((file) => resolve(file)), ...resolution];
    await writeFile(this.file, JSON.stringify({ settings: this.#settings, inputs: await stampsOf(files), outputs }));
  }
}

const absent = "absent";

async function stampsOf(files: readonly string[]): Promise<Readonly<Record<string, string>>> {
  const stamps = files.map(async (file) => {
    const found = await stat(file).catch(() => undefined);
    return [file, found === undefined ? absent : `${found.size} ${found.mtimeMs}`] as const;
  });
  return Object.fromEntries(await Promise.all(stamps));
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
