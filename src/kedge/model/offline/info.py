"""How the offline model is listed among the others."""

from kedge.domain.providers import (
    ModelApi,
    ModelInfo,
    ProviderInfo,
    capabilities,
    modalities,
    model_info,
)

PROVIDER = "kedge"
MODEL = "offline"


def offline_info() -> ModelInfo:
    """The model; it has no limits, costs nothing, and takes files without looking at them."""
    return model_info(
        id=MODEL,
        providerID=PROVIDER,
        api=ModelApi(id=MODEL, url="", npm="kedge"),
        name="Offline",
        family="offline",
        abilities=capabilities(
            temperature=False,
            reasoning=True,
            attachment=True,
            input=modalities(image=True, pdf=True),
        ),
    )


def offline_provider() -> ProviderInfo:
    """The provider of the offline model; it is always there."""
    return ProviderInfo(
        id=PROVIDER,
        name="kedge",
        source="custom",
        env=[],
        options={},
        models={MODEL: offline_info()},
    )
