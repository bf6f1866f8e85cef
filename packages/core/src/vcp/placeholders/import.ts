/**
 * Variables from the files of a VCPToolBox (VCP specification 11; VCP-19): texts of `TVStxt/`, prompts of `Agent/`
 * with `agent_map.json`, `toolbox_map.json`, `sarprompt.json`, lists of pictures, and what of `config.env` prompts
 * are made of. Files are only read here; what counts from then on is the tenant's configuration.
 */
import { isUtf8 } from "node:buffer";
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonValue } from "../../json.ts";
import { parseEnvFile } from "../plugins/env-file.ts";
import { newVariable, type VariableRequest } from "./register.ts";
import type { NewVariable, VariableKind, VariableOptions } from "./variable.ts";

export interface ImportedFile {
  readonly path: string;
  readonly body: Uint8Array;
}

export interface Skipped {
  /** The file, and the entry in it where it has several. */
  readonly path: string;
  readonly reason: string;
}

export interface ImportReport {
  readonly created: number;
  readonly updated: number;
  readonly unchanged: number;
  readonly skipped: readonly Skipped[];
}

/** All that can be read is there afterwards, or, where the database refuses, nothing. @throws GatewayError `conflict` */
export async function importVariables(
  { repos }: Pick<CoreDeps, "repos">,
  { tenant, config }: Pick<CallContext, "tenant" | "config">,
  files: readonly ImportedFile[],
): Promise<ImportReport> {
  const { variables, skipped } = readVariableFiles(files);
  await repos.variables.putAll(tenant, variables);
  const known = new Map(config.variables.map((entry) => [`${entry.kind} ${entry.name}`, entry]));
  const report = { created: 0, updated: 0, unchanged: 0 };
  for (const { kind, name, hash, options, position } of variables) {
    const before = known.get(`${kind} ${name}`);
    const isSame =
      before?.hash === hash &&
      (position === undefined || before.position === position) &&
      JSON.stringify(before.options) === JSON.stringify(options);
    report[before === undefined ? "created" : isSame ? "unchanged" : "updated"] += 1;
  }
  return { ...report, skipped };
}

/** Pure. Of two that have one name, the later one counts. */
export function readVariableFiles(files: readonly ImportedFile[]): {
  readonly variables: readonly NewVariable[];
  readonly skipped: readonly Skipped[];
} {
  const reading = new Reading();
  for (const file of files) reading.take(file);
  return reading.finish();
}

const texts = /(?:^|\/)TVStxt\//i;
const prompts = /(?:^|\/)Agent\//i;
const pictures = /(?:^|\/)([^/]+表情包)\.txt$/;
const anyText = /^(.+\.(?:txt|md))$/i;
const environment = /(?:^|\/)(?:[^/]*\.env|\.env[^/]*)$/i;

/** Within the outermost such folder. */
function textBehind(folder: RegExp, path: string): string | undefined {
  const found = folder.exec(path);
  return found === null ? undefined : anyText.exec(path.slice(found.index + found[0].length))?.[1];
}

class Reading {
  readonly #variables = new Map<string, NewVariable>();
  readonly #skipped: Skipped[] = [];
  readonly #prompts = new Map<string, string>();
  readonly #texts = new Map<string, string>();
  /** Texts that lie in no folder that says what they are. */
  readonly #loose = new Map<string, string>();
  readonly #settings = new Map<string, string>();
  #agents: { readonly path: string; readonly value: JsonValue } | undefined;
  #toolboxes: { readonly path: string; readonly value: JsonValue } | undefined;
  #sars: { readonly path: string; readonly value: JsonValue } | undefined;

  take({ path, body }: ImportedFile): void {
    if (!isUtf8(body)) return this.#skip(path, "is no text in UTF-8");
    const text = Buffer.from(body)
      .toString("utf8")
      .replace(/^\uFEFF/, "");
    const json = /(?:^|\/)(agent_map|toolbox_map|sarprompt)\.json$/i.exec(path)?.[1]?.toLowerCase();
    if (json !== undefined) return this.#takeJson(json, path, text);
    const list = pictures.exec(path)?.[1];
    if (list !== undefined) return this.#add(path, { kind: "emoji", name: list, content: text.trim(), options: {} });
    const prompt = textBehind(prompts, path);
    if (prompt !== undefined) return void this.#prompts.set(prompt, text);
    const named = textBehind(texts, path);
    if (named !== undefined) return void this.#texts.set(named, text);
    if (environment.test(path)) return parseEnvFile(text).forEach((value, key) => this.#settings.set(key, value));
    const loose = anyText.exec(path)?.[1];
    if (loose === undefined) return this.#skip(path, "is nothing that variables are made of");
    return void this.#loose.set(loose, text);
  }

  finish(): { readonly variables: readonly NewVariable[]; readonly skipped: readonly Skipped[] } {
    this.#addTexts();
    this.#addAgents();
    this.#addToolboxes();
    this.#addSars();
    this.#addValues();
    this.#addDetectors("detector", "Detector");
    this.#addDetectors("super_detector", "SuperDetector");
    return { variables: [...this.#variables.values()], skipped: this.#skipped };
  }

  #takeJson(kind: string, path: string, text: string): void {
    const value = parseJson(text);
    if (value === undefined) return this.#skip(path, "is no JSON");
    if (kind === "agent_map") this.#agents = { path, value };
    else if (kind === "toolbox_map") this.#toolboxes = { path, value };
    else this.#sars = { path, value };
    return undefined;
  }

  #addTexts(): void {
    for (const [name, content] of this.#texts) this.#add(name, { kind: "text", name, content, options: {} });
    for (const [name, content] of this.#loose) {
      if (this.#texts.size === 0) this.#add(name, { kind: "text", name, content, options: {} });
      else this.#skip(name, "lies outside of 'TVStxt' and 'Agent'");
    }
  }

  #addAgents(): void {
    const { path, value } = this.#agents ?? { path: "agent_map.json", value: undefined };
    if (value === undefined) {
      // Without a map each file is the agent of its name.
      for (const [file, content] of this.#prompts) {
        this.#add(file, { kind: "agent", name: withoutEnding(file), content, options: {} });
      }
      return;
    }
    if (!isJsonObject(value)) return this.#skip(path, "must be an object of names and files");
    for (const [name, file] of Object.entries(value)) {
      const content = typeof file === "string" ? this.#prompts.get(toName(file)) : undefined;
      if (content === undefined) this.#skip(`${path}: ${name}`, `its file ${shown(file)} is not in 'Agent'`);
      else this.#add(`${path}: ${name}`, { kind: "agent", name, content, options: {} });
    }
  }

  #addToolboxes(): void {
    if (this.#toolboxes === undefined) return;
    const { path, value } = this.#toolboxes;
    if (!isJsonObject(value)) return this.#skip(path, "must be an object of names and files");
    for (const [name, entry] of Object.entries(value)) {
      const { file, description } = isJsonObject(entry) ? entry : { file: entry, description: undefined };
      if (typeof file !== "string") this.#skip(`${path}: ${name}`, "names no file");
      else {
        const options = typeof description === "string" ? { description: description.slice(0, 4_096) } : {};
        this.#add(`${path}: ${name}`, { kind: "toolbox", name, content: toName(file), options });
      }
    }
  }

  #addSars(): void {
    if (this.#sars === undefined) return this.#addSarSettings();
    const { path, value } = this.#sars;
    if (!Array.isArray(value)) return this.#skip(path, "must be a list");
    value.forEach((entry, at) => {
      const { promptKey, models, content, matchMode } = isJsonObject(entry) ? entry : {};
      const named = Array.isArray(models) ? models.filter((model) => typeof model === "string") : [];
      if (typeof promptKey !== "string" || typeof content !== "string") {
        return this.#skip(`${path}[${at}]`, "needs 'promptKey' and 'content'");
      }
      return this.#addSar(`${path}[${at}]`, promptKey, content, {
        models: named.map((model) => model.trim()).filter((model) => model !== ""),
        ...(matchMode === "includes" ? { match_mode: "includes" } : {}),
      });
    });
    return undefined;
  }

  /** As upstream makes `sarprompt.json` of them where there is none. */
  #addSarSettings(): void {
    for (const [key, content] of this.#settings) {
      const number = /^SarPrompt(\d+)$/.exec(key)?.[1];
      if (number === undefined) continue;
      const models = (this.#settings.get(`SarModel${number}`) ?? "").split(",").map((model) => model.trim());
      this.#addSar(key, key, content, { models: models.filter((model) => model !== "") });
    }
  }

  #addSar(path: string, name: string, content: string, options: VariableOptions): void {
    this.#add(path, { kind: "sar", name, content, options });
  }

  /** In the order of the file, which decides what a value may hold. */
  #addValues(): void {
    let position = 0;
    for (const [key, content] of this.#settings) {
      const kind: VariableKind | undefined = key.startsWith("Tar") ? "tar" : key.startsWith("Var") ? "var" : undefined;
      if (kind !== undefined) {
        position += 1;
        this.#add(key, { kind, name: key, content, options: {}, position });
      } else if (/^Agent[^_]/.test(key)) {
        const prompt = this.#prompts.get(toName(content)) ?? this.#texts.get(toName(content));
        if (prompt === undefined && anyText.test(content.trim()))
          this.#skip(key, `its file ${shown(content)} is missing`);
        else this.#add(key, { kind: "agent", name: key, content: prompt ?? content, options: {} });
      }
    }
  }

  #addDetectors(kind: "detector" | "super_detector", prefix: string): void {
    for (const [key, content] of this.#settings) {
      const number = new RegExp(`^${prefix}(\\d+)$`).exec(key)?.[1];
      if (number === undefined) continue;
      const output = this.#settings.get(`${prefix}_Output${number}`);
      if (output === undefined) this.#skip(key, `has no '${prefix}_Output${number}'`);
      else if (content !== "") this.#add(key, { kind, name: key, content, options: { output } });
    }
  }

  #add(path: string, request: VariableRequest): void {
    try {
      const variable = newVariable(request);
      this.#variables.set(`${request.kind} ${request.name}`, variable);
    } catch (error) {
      if (!(error instanceof GatewayError)) throw error;
      this.#skip(path, error.message);
    }
  }

  #skip(path: string, reason: string): void {
    this.#skipped.push({ path, reason });
  }
}

function toName(file: string): string {
  return file
    .trim()
    .replaceAll("\\", "/")
    .replace(/^(?:\.\/)?(?:(?:TVStxt|Agent)\/)?/i, "");
}

function withoutEnding(file: string): string {
  return file.replace(/\.(?:txt|md)$/i, "").replaceAll("/", "_");
}

function shown(file: JsonValue): string {
  return typeof file === "string" ? `'${file.slice(0, 100)}'` : "";
}
