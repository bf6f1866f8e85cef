/** The client connections that this process holds open. */
import type { Push } from "@toolyard/core/ports/push";

export interface ConnectionPush extends Push {
  /** @param send writes one frame; throwing means that the connection is no more. @returns forgets the connection */
  register(connectionId: string, send: (frame: string) => void | Promise<void>): () => void;
}

export function createMemoryPush(): ConnectionPush {
  const connections = new Map<string, (frame: string) => void | Promise<void>>();

  return {
    register(connectionId, send) {
      connections.set(connectionId, send);
      return () => {
        // A newer connection may have taken the id over.
        if (connections.get(connectionId) === send) connections.delete(connectionId);
      };
    },
    async send(connectionId, frame) {
      const write = connections.get(connectionId);
      if (write === undefined) return "gone";
      try {
        await write(frame);
        return "sent";
      } catch {
        if (connections.get(connectionId) === write) connections.delete(connectionId);
        return "gone";
      }
    },
  };
}
