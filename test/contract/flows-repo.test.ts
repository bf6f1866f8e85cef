import { twoInstancesOfFile, twoInstancesOfServer } from "../support/two-instances.ts";
import { describeFlowRepo } from "./flows-repo.ts";

describeFlowRepo("file", twoInstancesOfFile);
describeFlowRepo("server", twoInstancesOfServer);
