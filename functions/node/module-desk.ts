/** What a node that holds modules asks its gateway, over the connection that it has for its tools. */
import type { JsonObject } from "@toolyard/core/json";
import type { ModuleReport } from "@toolyard/core/vcp/modules/reports";
import type { ModuleSpec, Told } from "@toolyard/core/vcp/modules/wire";
import { readDone, readModulesHeld, readModuleOpened } from "./frames.ts";
import { LinkLost, type NodeLink } from "./link.ts";

export interface OpenedModule {
  readonly plugin: string;
  readonly fingerprint: string;
  readonly spec: ModuleSpec;
  readonly envFiles: readonly { readonly path: string; readonly base64: string }[];
  readonly filesUrl: string | null;
  readonly filesHash: string;
  readonly maxBytes: number;
}

export interface ModuleDesk {
  /** Undefined: the gateway is away. */
  hold(reports: readonly ModuleReport[]): Promise<
    | {
        readonly modules: readonly { readonly plugin: string; readonly fingerprint: string }[];
        readonly leaseMs: number;
      }
    | undefined
  >;
  open(plugin: string): Promise<OpenedModule>;
  /** Best effort. */
  tell(told: Told): void;
  download(url: string): Promise<Uint8Array>;
}

export interface ModuleDeskOptions {
  readonly link: NodeLink;
  readonly node: string;
  readonly instance: string;
  readonly download: ModuleDesk["download"];
}

export function createModuleDesk({ link, node, instance, download }: ModuleDeskOptions): ModuleDesk {
  const own = { node, instance };
  return {
    download,
    async hold(reports) {
      const message = { type: "modules.hold", ...own, reports: reports.map((report): JsonObject => ({ ...report })) };
      try {
        const { modules, lease_ms: leaseMs } = await link.askNow(message, readModulesHeld);
        return { modules, leaseMs };
      } catch (thrown) {
        if (thrown instanceof LinkLost) return undefined;
        throw thrown;
      }
    },
    async open(plugin) {
      const opened = await link.ask({ type: "modules.open", plugin, ...own }, readModuleOpened);
      if (opened === undefined) throw new Error("the node is stopping");
      const { fingerprint, spec, env_files: envFiles, files_url: filesUrl, files_hash: filesHash } = opened;
      return { plugin, fingerprint, spec, envFiles, filesUrl, filesHash, maxBytes: opened.max_bytes };
    },
    tell({ plugin, to, data }) {
      void link.askNow({ type: "modules.told", plugin, to, data }, readDone).catch(() => undefined);
    },
  };
}
