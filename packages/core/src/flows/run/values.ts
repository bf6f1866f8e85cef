/** What steps were given and came to, as it is kept: sealed with the tenant's key, long ones as blobs. */
import type { CallContext } from "../../context.ts";
import type { AdapterDeps } from "../../deps.ts";
import { GatewayError } from "../../errors/gateway-error.ts";
import { newId } from "../../ids.ts";
import { parseJson, type JsonValue } from "../../json.ts";
import { readAll, runBlobPrefix } from "../../ports/blob-store.ts";
import type { StoredValue } from "../../ports/flow-runs.ts";

/** Characters of a sealed value that stay in its row. */
const longestInline = 16_384;

export type ValueKind = "input" | "output" | "progress" | "signal";

export class StepValues {
  readonly #deps: Pick<AdapterDeps, "sealer" | "blobs">;
  readonly #context: Pick<CallContext, "tenant" | "config">;
  readonly #run: string;

  constructor(
    deps: Pick<AdapterDeps, "sealer" | "blobs">,
    context: Pick<CallContext, "tenant" | "config">,
    run: string,
  ) {
    this.#deps = deps;
    this.#context = context;
    this.#run = run;
  }

  /**
   * @param of the step's path, or the signal's token: what is kept opens there only
   * @param name of the blob of a long one. Absent, one of its own: an attempt that has lost the run must not write over
   * what the other one has kept.
   */
  async pack(kind: ValueKind, of: string, value: JsonValue, name: string = newId("request")): Promise<StoredValue> {
    const { tenant, config } = this.#context;
    const sealed = await this.#deps.sealer.seal(tenant, config.wrappedKey, this.#aad(kind, of), JSON.stringify(value));
    if (sealed.length <= longestInline) return { sealed };
    const blob = `${runBlobPrefix(tenant, this.#run)}${name}`;
    await this.#deps.blobs.put(blob, Buffer.from(sealed, "utf8"), { mediaType: "application/jose" });
    return { blob };
  }

  async open(kind: ValueKind, of: string, stored: StoredValue): Promise<JsonValue> {
    const { tenant, config } = this.#context;
    const sealed = "sealed" in stored ? stored.sealed : await this.#read(stored.blob);
    return parseJson(await this.#deps.sealer.open(tenant, config.wrappedKey, this.#aad(kind, of), sealed)) ?? null;
  }

  async #read(key: string): Promise<string> {
    const blob = await this.#deps.blobs.get(key);
    if (blob === undefined) throw new GatewayError("not_found", "What this step came to is no longer kept.");
    return Buffer.from(await readAll(blob.body)).toString("utf8");
  }

  #aad(kind: ValueKind, of: string): readonly string[] {
    return ["flow-step", this.#run, kind, of];
  }
}
