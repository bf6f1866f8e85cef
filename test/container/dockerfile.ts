/**
 * Carries out a Dockerfile without an engine, as far as ours goes: each stage is a directory, COPY honours
 * .dockerignore, RUN runs here, but for packages of the system, which would be this machine's. What an engine adds (base
 * images, layers, other users) is not shown by it.
 */
import { execFile } from "node:child_process";
import { chown, cp, mkdir, readFile } from "node:fs/promises";
import { basename, dirname, join, relative } from "node:path";
import { promisify } from "node:util";

const run = promisify(execFile);

export interface Instruction {
  readonly name: string;
  readonly value: string;
}

export interface Stage {
  readonly name: string;
  readonly image: string;
  readonly instructions: readonly Instruction[];
}

export function parseDockerfile(text: string): readonly Stage[] {
  const stages: { name: string; image: string; instructions: Instruction[] }[] = [];
  for (const line of text.replaceAll(/\\\n/g, " ").split("\n")) {
    const [, name, value] = /^([A-Z]+)\s+(.*)$/.exec(line.trim()) ?? [];
    if (name === undefined || value === undefined) continue;
    if (name === "FROM") {
      const [image = "", , stage = "final"] = value.split(/\s+/);
      stages.push({ name: stage, image, instructions: [] });
    } else stages.at(-1)?.instructions.push({ name, value });
  }
  return stages;
}

/** Value of the last instruction of this name. */
export function lastOf({ instructions }: Stage, name: string): string | undefined {
  return instructions.findLast((instruction) => instruction.name === name)?.value;
}

/** Packages of the system that it installs. */
export function packagesOf({ instructions }: Stage): readonly string[] {
  return instructions
    .filter(({ name }) => name === "RUN")
    .flatMap(({ value }) => value.split("&&"))
    .flatMap((command) => /^\s*apt-get install (.+)$/.exec(command)?.[1]?.trim().split(/\s+/) ?? [])
    .filter((word) => !word.startsWith("-"));
}

/** `["a", "b"]` of the exec form, which needs no shell. @throws SyntaxError for the other form */
export function execForm(value: string): readonly string[] {
  return JSON.parse(value.slice(value.indexOf("["))) as readonly string[];
}

export interface BuiltStage {
  /** What is `/` in the image. */
  readonly root: string;
  readonly workdir: string;
  readonly env: Readonly<Record<string, string>>;
}

export interface BuildOptions {
  readonly context: string;
  /** An empty directory. */
  readonly out: string;
  /** Directory with the Node of the base image. */
  readonly node: string;
  /** User id for `--chown`, where this process may give files away. */
  readonly uid: number | undefined;
}

export async function buildStages(
  stages: readonly Stage[],
  options: BuildOptions,
): Promise<Readonly<Record<string, BuiltStage>>> {
  const built: Record<string, BuiltStage> = {};
  for (const stage of stages) built[stage.name] = await buildStage(stage, built, options);
  return built;
}

async function buildStage(
  stage: Stage,
  built: Readonly<Record<string, BuiltStage>>,
  options: BuildOptions,
): Promise<BuiltStage> {
  const root = join(options.out, stage.name);
  const isIgnored = await readIgnore(options.context);
  const env: Record<string, string> = {};
  let workdir = root;
  await mkdir(root);
  for (const { name, value } of stage.instructions) {
    switch (name) {
      case "WORKDIR":
        workdir = join(root, value);
        await mkdir(workdir, { recursive: true });
        break;
      case "ENV":
        for (const [, key, setTo] of value.matchAll(/(\w+)=(\S+)/g)) env[key ?? ""] = setTo ?? "";
        break;
      case "COPY":
        await copy(value, { root, workdir, built, isIgnored, options });
        break;
      case "RUN": {
        if (value.startsWith("apt-get ")) break;
        const path = `${options.node}:${process.env["PATH"] ?? ""}`;
        await run("sh", ["-ec", value], { cwd: workdir, env: { ...process.env, ...env, PATH: path } });
        break;
      }
      default:
    }
  }
  return { root, workdir, env };
}

interface CopyPlace {
  readonly root: string;
  readonly workdir: string;
  readonly built: Readonly<Record<string, BuiltStage>>;
  readonly isIgnored: (path: string) => boolean;
  readonly options: BuildOptions;
}

async function copy(value: string, { root, workdir, built, isIgnored, options }: CopyPlace): Promise<void> {
  const words = value.split(/\s+/);
  const paths = words.filter((word) => !word.startsWith("--"));
  const from = words.find((word) => word.startsWith("--from="))?.slice("--from=".length);
  const sources = paths.slice(0, -1);
  const target = paths.at(-1) ?? "";
  const base = from === undefined ? options.context : built[from]?.root;
  if (base === undefined) throw new Error(`COPY names no stage before it: ${value}`);
  const to = target.startsWith("/") ? join(root, target) : join(workdir, target);
  for (const source of sources) {
    const filter = (path: string): boolean =>
      from !== undefined || path === join(base, source) || !isIgnored(relative(base, path));
    if (from === undefined && isIgnored(source)) throw new Error(`.dockerignore keeps ${source} out of the build`);
    const isInto = target.endsWith("/") && !source.endsWith("/") && /\.\w+$/.test(basename(source));
    const place = isInto ? join(to, basename(source)) : to;
    await mkdir(dirname(place), { recursive: true });
    await cp(join(base, source), place, { recursive: true, filter });
  }
  const isGiven = words.some((word) => word.startsWith("--chown="));
  if (isGiven && options.uid !== undefined) await chown(to, options.uid, options.uid);
}

/** Whether a path of the context is kept out; the last pattern that fits it, or a directory above it, decides. */
async function readIgnore(context: string): Promise<(path: string) => boolean> {
  const lines = (await readFile(join(context, ".dockerignore"), "utf8")).split("\n");
  const rules = lines
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => ({ keeps: line.startsWith("!"), pattern: toPattern(line.replace(/^!/, "")) }));
  return (path) => {
    const parts = path.split("/");
    const prefixes = parts.map((_, at) => parts.slice(0, at + 1).join("/"));
    const rule = rules.findLast(({ pattern }) => prefixes.some((prefix) => pattern.test(prefix)));
    return rule !== undefined && !rule.keeps;
  };
}

function toPattern(line: string): RegExp {
  const escaped = line.replaceAll(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${escaped.replaceAll("**/", "(?:.*/)?").replaceAll(/(?<![).])\*/g, "[^/]*")}$`);
}
