import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeAgentRepo } from "./agents-repo.ts";

describeAgentRepo("file", twoInstancesOfFile);
describeAgentRepo("server", twoInstancesOfServer);
