/** What the row of a VCP plugin holds. */
import type { JsonObject } from "../../json.ts";

/** `execution_config` of such a row. */
export interface VcpExecutionConfig {
  readonly schema_version: "v1";
  readonly vcp: {
    /** `plugin-manifest.json` as its author wrote it. */
    readonly manifest: JsonObject;
    /** The plugin's folder; null: a manifest without files. */
    readonly files: PluginFiles | null;
    /** Names, without values, that `config.env` and `.env` of the folder set; the files themselves are sealed. */
    readonly env_keys: { readonly [file: string]: readonly string[] };
  };
}

/** A zip in the blob store at `pluginFilesKey(tenant, hash)`. */
export interface PluginFiles {
  /** SHA-256 of the zip, hexadecimal. */
  readonly hash: string;
  readonly bytes: number;
  readonly count: number;
}
