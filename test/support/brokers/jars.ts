/** Java programs that Maven fetches: what Java is to be told to find them. Fetched once for each checkout. */
import { createHash } from "node:crypto";
import { existsSync } from "node:fs";
import { mkdir, readFile } from "node:fs/promises";
import { delimiter, join, resolve } from "node:path";
import { findProgram, runProgram } from "./programs.ts";

const cache = resolve(import.meta.dirname, "../../../node_modules/.cache/toolyard-brokers");
const longestFetchMs = 600_000;

export interface Jars {
  readonly java: string;
  /** As Java takes it. */
  readonly classPath: string;
}

/** @returns what is there, or why it is not, for people */
export async function fetchJars(name: string, directory: string): Promise<Jars | string> {
  const java = findProgram("java");
  if (java === undefined) return "Java is not installed (Debian: apt-get install default-jdk-headless)";
  const pomFile = join(directory, "pom.xml");
  // Another version is other jars.
  const wanted = createHash("sha256")
    .update(await readFile(pomFile))
    .digest("hex")
    .slice(0, 16);
  const file = join(cache, `${name}-${wanted}.classpath`);
  const before = await readJars(file);
  if (before !== undefined) return { java, classPath: before };
  const maven = findProgram("mvn");
  if (maven === undefined) return `${name}'s jars are not there, nor is Maven (Debian: apt-get install maven)`;
  await mkdir(cache, { recursive: true });
  try {
    const goal = ["dependency:build-classpath", `-Dmdep.outputFile=${file}`];
    const pom = ["-f", pomFile];
    await runProgram(maven, ["-B", "-q", ...pom, ...goal], { ...process.env }, AbortSignal.timeout(longestFetchMs));
  } catch (error) {
    return `${name}'s jars cannot be fetched: ${String(error).slice(0, 500)}`;
  }
  const classPath = await readJars(file);
  return classPath === undefined ? `Maven did not fetch ${name}'s jars` : { java, classPath };
}

async function readJars(file: string): Promise<string | undefined> {
  const text = await readFile(file, "utf8").catch(() => "");
  const classPath = text.trim();
  return classPath !== "" && classPath.split(delimiter).every((path) => existsSync(path)) ? classPath : undefined;
}
