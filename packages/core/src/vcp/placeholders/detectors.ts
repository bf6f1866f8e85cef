/**
 * Detectors (VCP protocol, s.8): texts that are replaced by others in messages that are otherwise ready, in the order
 * of their numbers. `Detector…` in system messages, `SuperDetector…` in messages of every role.
 */
import type { CallContext } from "../../context.ts";
import type { CoreDeps } from "../../core-deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { Pace } from "../../pace.ts";
import type { JsonObject } from "../../json.ts";
import type { TenantConfig } from "../../tenant-config.ts";
import { Contents } from "./contents.ts";
import { isOfSystem, mapText, textsOf } from "../message-text.ts";
import type { VariableEntry } from "./variable.ts";

interface Detector {
  readonly name: string;
  readonly ofSystem: boolean;
  readonly entry: VariableEntry;
}

const ofConfigs = new WeakMap<TenantConfig, readonly Detector[]>();

/**
 * The messages after all detectors; a message in which nothing is found is the same object.
 * @throws GatewayError `placeholder_limit` naming the detector with which it is too much
 */
export async function applyDetectors(
  deps: Pick<CoreDeps, "repos">,
  context: Pick<CallContext, "tenant" | "config">,
  messages: readonly JsonObject[],
): Promise<readonly JsonObject[]> {
  const { config } = context;
  const detectors = detectorsOf(config);
  if (detectors.length === 0) return messages;
  const contents = new Contents(deps.repos.variables, context);
  await contents.read(detectors.filter((each) => contents.of(each) === undefined));
  const run = new Run(
    detectors.map((each) => ({ ...each, wanted: contents.of(each)?.text ?? "" })).filter(({ wanted }) => wanted !== ""),
    config.settings.placeholder_chars_max,
  );
  const changed: JsonObject[] = [];
  for (const message of messages) {
    const isSystem = isOfSystem(message);
    const texts: string[] = [];
    for (const text of textsOf(message)) texts.push(await run.apply(text, isSystem));
    let at = 0;
    changed.push(mapText(message, (text) => texts[at++] ?? text));
  }
  return changed;
}

interface Wanting extends Detector {
  readonly wanted: string;
}

/** Characters that all detectors of a request look through together. */
const mostWork = 1_000_000_000;
/** Characters until others have a turn. */
const slice = 262_144;

/** What the detectors of one request may still do. */
class Run {
  readonly #detectors: readonly Wanting[];
  readonly #limit: number;
  readonly #pace = new Pace();
  /** Characters that the messages may still grow by. */
  #left: number;
  #work = 0;
  #sinceTurn = 0;

  constructor(detectors: readonly Wanting[], limit: number) {
    this.#detectors = detectors;
    this.#limit = limit;
    this.#left = limit;
  }

  async apply(text: string, isOfSystem: boolean): Promise<string> {
    let changed = text;
    for (const detector of this.#detectors) {
      if (detector.ofSystem && !isOfSystem) continue;
      this.#charge(changed.length + 16, detector);
      if (this.#sinceTurn > slice) {
        this.#sinceTurn = 0;
        await this.#pace.turn();
      }
      changed = this.#replace(changed, detector);
    }
    return changed;
  }

  #charge(characters: number, { name }: Wanting): void {
    this.#work += characters;
    this.#sinceTurn += characters;
    if (this.#work <= mostWork) return;
    const reason = "is one of more detectors than can look through messages of this length; have fewer of them";
    throw new GatewayError("placeholder_limit", `'${name}' ${reason}.`, { param: name });
  }

  /** Counts what it comes to before anything is put together. */
  #replace(text: string, { name, wanted, entry }: Wanting): string {
    const output = entry.options.output ?? "";
    const growth = output.length - wanted.length;
    let isThere = false;
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      isThere = true;
      if (growth <= 0) break;
      this.#left -= growth;
      if (this.#left < 0) throw tooLong(name, this.#limit);
    }
    return isThere ? text.replaceAll(wanted, () => output) : text;
  }
}

function detectorsOf(config: TenantConfig): readonly Detector[] {
  let detectors = ofConfigs.get(config);
  if (detectors === undefined) {
    detectors = (["detector", "super_detector"] as const).flatMap((kind) =>
      config.variables
        .filter((entry) => entry.kind === kind)
        .map((entry) => ({ name: entry.name, ofSystem: kind === "detector", entry }))
        .sort((a, b) => numberOf(a.name) - numberOf(b.name)),
    );
    ofConfigs.set(config, detectors);
  }
  return detectors;
}

function numberOf(name: string): number {
  return Number(/\d+$/.exec(name)?.[0] ?? 0);
}

function tooLong(name: string, limit: number): GatewayError {
  return new GatewayError(
    "placeholder_limit",
    `'${name}' lengthens the messages by more than ${limit} characters, the setting 'placeholder_chars_max'; change its output.`,
    { param: name },
  );
}
