"""Studies: whole pieces of work made of the rooms below, each a module that can be run.

    python -m hyperproto.studies.ablation              what HyperProto's gain over ProtoNet is made of
    python -m hyperproto.studies.prior_ratio_choice    which prior_ratio a trained encoder wants
    python -m hyperproto.studies.entity_grid           every method on Few-NERD, settings chosen on dev
    python -m hyperproto.studies.intents               the estimators on CLINC150, BANKING77 and HWU64

The demo (`hyperproto demo`) and a table of the paper (`hyperproto report`) are studies with commands of their own.
"""
